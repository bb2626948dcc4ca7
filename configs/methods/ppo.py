"""PPO with a critic (arXiv 1707.06347, 1506.02438), as Search-R1's PPO (arXiv 2503.09516).

Changes: GAE over sampled tokens, observations left out; a clipped value loss trains a critic that starts from the
policy; KL in the reward.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/ppo.py --workdir=runs/ppo
"""

from configs.methods._base import CRITIC, method

FAMILY = "interface"


def get_config(base="quickstart"):
    return method(
        base,
        "ppo",
        credit={"estimator": "gae", "discount": 1.0, "lam": 1.0, "whiten": True, "step_reward": False},
        loss={
            "kl": {"coefficient": 0.001, "estimator": "k1", "place": "reward", "weights": {"kind": "uniform"}},
            "terms": ({"kind": "value", "coefficient": 1.0, "clip": 0.5},),
        },
        rl={"critic_optimizer": CRITIC, "critic_trunk": "own"},
    )
