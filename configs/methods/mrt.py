"""MRT (arXiv 2503.07572).

Changes: a bonus for the change of the chance of success, added to the final reward: the chance that the policy, made to
answer after each turn, gives a golden answer. It is computed, not sampled.
Not covered: forced answers with thoughts of their own.

Command: python -m rlsearch.train --config=configs/methods/mrt.py --workdir=runs/mrt
"""

from configs.methods._base import method

FAMILY = "reward"


def get_config(base="quickstart"):
    return method(
        base,
        "mrt",
        credit={
            "estimator": "potential_shaping",
            "coefficient": 0.3,
            "discount": 1.0,
            "watermark": False,
            "to_go": False,
            "relative": False,
            "outcome": True,
            "scale": True,
        },
        notes=(("potential", "answer_likelihood"),),
        scorer={
            "model": "policy",
            "answers": "gold",
            "length": "total",
            "several": "logsumexp",
            "scale": "probability",
        },
    )
