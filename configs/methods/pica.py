"""PiCA (arXiv 2605.09287).

Changes: turns earn the increments of a success potential, relative to the question's other turns: the chance that the
policy as it was before training, made to answer here, gives a golden answer.
Not covered: pivots, the golden sub-queries and sub-answers of earlier trajectories.

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
        notes=(("potential", "answer_likelihood"),),
        scorer={
            "model": "reference",
            "answers": "gold",
            "length": "total",
            "several": "logsumexp",
            "scale": "probability",
        },
    )
