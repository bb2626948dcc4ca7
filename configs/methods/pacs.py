"""PACS (arXiv 2509.02522).

Changes: cross-entropy of a score made of log-ratios, less the group's, with the outcome as label.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/pacs.py --workdir=runs/pacs
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "pacs",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "clip": None,
            "terms": ({"kind": "pacs", "coefficient": 1.0, "beta": 1.0, "above": 0.5, "balance": True},),
        },
    )
