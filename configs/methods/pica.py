"""PiCA (arXiv 2605.09287).

Changes: turns earn the increments of a success potential, relative to the question's other turns.
Not covered: the model of success and its pivots: the potential is whether a golden answer has been read.

Command: python -m rlsearch.train --config=configs/methods/pica.py --workdir=runs/pica
"""

from configs.methods._base import method

FAMILY = "reward"


def get_config(base="quickstart"):
    return method(
        base,
        "pica",
        credit={
            "estimator": "potential_shaping",
            "coefficient": 0.5,
            "discount": 1.0,
            "watermark": False,
            "to_go": False,
            "relative": True,
            "outcome": True,
            "scale": True,
        },
        notes=(("potential", "answer_seen"),),
    )
