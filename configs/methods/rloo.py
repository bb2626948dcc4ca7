"""RLOO (arXiv 2402.14740).

Changes: each episode's reward less the mean of the others of its question; plain policy gradient.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/rloo.py --workdir=runs/rloo
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "rloo",
        credit={"estimator": "rloo"},
        loss={"clip": {"kind": "reinforce"}, "reduction": {"kind": "sequence"}},
    )
