"""Search-R1 with GRPO (arXiv 2503.09516).

Changes: a group of eight chains, the group-relative advantage divided by the group's deviation, PPO's clip, KL to the
starting policy by k3 in the loss, every episode of equal weight.
Not covered: its PPO variant is ppo.py.

Command: python -m rlsearch.train --config=configs/methods/search_r1.py --workdir=runs/search_r1
"""

from configs.methods._base import method

FAMILY = "interface"


def get_config(base="quickstart"):
    kl = {"coefficient": 0.001, "estimator": "k3", "place": "loss", "weights": {"kind": "uniform"}}
    loss = {"clip": {"kind": "ppo", "low": 0.2, "high": 0.2}, "kl": kl, "reduction": {"kind": "sequence"}}
    return method(base, "search_r1", credit={"estimator": "grpo", "scale": True}, loss=loss)
