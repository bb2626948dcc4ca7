"""ETR (arXiv 2601.03723).

Changes: the clip widens with the size of the advantage and with the variance of the group's rewards.
Not covered: schedules of the two factors.

Command: python -m rlsearch.train --config=configs/methods/etr.py --workdir=runs/etr
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "etr",
        credit={"estimator": "grpo", "scale": True},
        loss={"clip": {"kind": "elastic", "low": 0.2, "high": 0.2, "magnitude": 0.1, "variance": 1.0}},
        rl={"updates_per_batch": 2},
    )
