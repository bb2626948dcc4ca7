"""ECHO's routing (arXiv 2606.31650).

Changes: positive credit flows only to turns whose evidence was used, and to the last one.
Not covered: records and their selection: a turn that found a supporting passage counts as used.

Command: python -m rlsearch.train --config=configs/methods/echo.py --workdir=runs/echo
"""

from configs.methods._base import method

FAMILY = "context"


def get_config(base="quickstart"):
    return method(
        base,
        "echo",
        credit={"estimator": "evidence", "negative": 0.0, "keep_last": True, "scale": True},
        notes=(("support", "found_evidence"),),
    )
