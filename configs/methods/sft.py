"""Rejection sampling: maximum likelihood of the rollouts that are right.

Changes: no policy gradient: right rollouts are imitated.
Not covered: demonstrations: rollouts are the policy's own.

Command: python -m rlsearch.train --config=configs/methods/sft.py --workdir=runs/sft
"""

from configs.methods._base import method

FAMILY = "stage"


def get_config(base="quickstart"):
    return method(
        base,
        "sft",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "clip": None,
            "terms": ({"kind": "sft", "coefficient": 1.0, "note": None, "above": 0.5},),
        },
    )
