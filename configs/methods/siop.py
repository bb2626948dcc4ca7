"""SIOP (arXiv 2605.04984).

Changes: turns earn changes of a potential alone, and no outcome is added.
Not covered: clusters of the group's answers in the place of labels: the potential is whether a golden answer has
been read.

Command: python -m rlsearch.train --config=configs/methods/siop.py --workdir=runs/siop
"""

from configs.methods._base import method

FAMILY = "reward"


def get_config(base="quickstart"):
    return method(
        base,
        "siop",
        credit={
            "estimator": "potential_shaping",
            "coefficient": 1.0,
            "discount": 1.0,
            "watermark": False,
            "to_go": False,
            "relative": True,
            "outcome": False,
            "scale": True,
        },
        notes=(("potential", "answer_seen"),),
    )
