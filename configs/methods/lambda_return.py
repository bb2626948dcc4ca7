"""Lambda-returns with a critic (Sutton and Barto, 2018, chapter 12).

Changes: a token's credit is its lambda-return, whitened over the batch.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/lambda_return.py --workdir=runs/lambda_return
"""

from configs.methods._base import CRITIC, method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "lambda_return",
        credit={"estimator": "lambda_return", "discount": 1.0, "lam": 0.95, "whiten": True, "step_reward": False},
        loss={"terms": ({"kind": "value", "coefficient": 1.0, "clip": 0.5},)},
        rl={"critic_optimizer": CRITIC, "critic_trunk": "own"},
    )
