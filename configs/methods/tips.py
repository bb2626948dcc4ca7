"""TIPS (arXiv 2603.22293).

Changes: each turn is credited for the change of a potential, discounted to go, beside the outcome's advantage.
Not covered: the teacher that scores the gold answer: the potential is the share of supporting passages found,
whatever the answer.

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
            "coefficient": 0.5,
            "discount": 0.99,
            "watermark": False,
            "to_go": True,
            "relative": False,
            "outcome": True,
            "scale": True,
        },
        notes=(("potential", "evidence"),),
    )
