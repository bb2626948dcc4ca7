"""TIPS (arXiv 2603.22293).

Changes: each turn is credited for the change of a potential, discounted to go, beside the outcome's advantage.
The potential is the log-likelihood of the golden answer under a frozen copy of the policy.
Not covered: refreshing that copy now and then, and its PPO.

Measured, seed 0: exact match 0.33 before and 0.97 after (three hops 0.00 and 0.95), 1.00 and 2.00 searches a question.

Command: python -m rlsearch.train --config=configs/methods/tips.py --workdir=runs/tips
"""

from configs.methods._base import method

FAMILY = "reward"


def get_config(base="quickstart"):
    return method(
        base,
        "tips",
        credit={
            "estimator": "potential_shaping",
            "coefficient": 0.1,
            "discount": 0.99,
            "watermark": False,
            "to_go": True,
            "relative": False,
            "outcome": True,
            "scale": True,
        },
        notes=(("potential", "answer_likelihood"),),
        scorer={"model": "reference", "answers": "gold", "length": "total", "several": "max", "scale": "log"},
    )
