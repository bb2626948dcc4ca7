"""REINFORCE++ with baseline (arXiv 2501.03262), as R1-Searcher uses it.

Changes: the group's mean is subtracted, and the result is normalised over the batch.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/reinforce_pp_baseline.py --workdir=runs/reinforce_pp_baseline
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "reinforce_pp_baseline",
        credit={"estimator": "reinforce_baseline"},
    )
