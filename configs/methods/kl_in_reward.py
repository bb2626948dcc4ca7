"""KL in the reward (Search-R1's PPO, arXiv 2503.09516).

Changes: the penalty of the episode's tokens is taken from its reward, by k1, whose policy gradient is that of the
KL.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/kl_in_reward.py --workdir=runs/kl_in_reward
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "kl_in_reward",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "kl": {"coefficient": 0.001, "estimator": "k1", "place": "reward", "weights": {"kind": "uniform"}},
        },
    )
