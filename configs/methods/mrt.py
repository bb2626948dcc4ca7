"""MRT (arXiv 2503.07572).

Changes: a bonus for the change of the estimated chance of success, added to the final reward.
Not covered: forced answers from each prefix: the potential is whether a golden answer has been read.

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
        notes=(("potential", "answer_seen"),),
    )
