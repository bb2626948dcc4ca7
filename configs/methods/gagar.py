"""GAGAR (METHODS.tsv S122).

Changes: passing rollouts that rank lower weigh less; the sum of positive advantages stays.
Not covered: the agentic grader: fewer searches rank higher.

Command: python -m rlsearch.train --config=configs/methods/gagar.py --workdir=runs/gagar
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "gagar",
        credit={"estimator": "graded", "decay": 0.7, "scale": True},
        notes=(("rank", "searches"),),
    )
