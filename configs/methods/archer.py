"""ArCHer's utterance level (arXiv 2402.19446), Turn-PPO (arXiv 2512.17008).

Changes: GAE whose step is a turn; all tokens of a turn have its advantage.
Not covered: off-policy replay, and a critic of its own for each token.

Command: python -m rlsearch.train --config=configs/methods/archer.py --workdir=runs/archer
"""

from configs.methods._base import CRITIC, method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "archer",
        credit={"estimator": "turn_gae", "discount": 1.0, "lam": 0.95, "whiten": True, "step_reward": False},
        loss={"terms": ({"kind": "value", "coefficient": 1.0, "clip": 0.5},)},
        rl={"critic_optimizer": CRITIC, "critic_trunk": "own"},
    )
