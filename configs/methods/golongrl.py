"""TMN-Reweight of GoLongRL (METHODS.tsv S152).

Changes: advantages are scaled by task-level moments, the number of hops being the task, and weighted by difficulty.
Not covered: its nine long-context tasks.

Command: python -m rlsearch.train --config=configs/methods/golongrl.py --workdir=runs/golongrl
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "golongrl",
        credit={"estimator": "task_reweighted", "smoothing": 1.0, "strength": 1.0},
        notes=(("task", "hops"),),
    )
