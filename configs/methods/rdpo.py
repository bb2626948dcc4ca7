"""RDPO (METHODS.tsv S158).

Changes: each reward term is quantile-normalised in the question, the terms are whitened together, and then summed.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/rdpo.py --workdir=runs/rdpo
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "rdpo",
        credit={"estimator": "quantile_whitened", "magnitude": 0.5, "shrinkage": 0.1},
        reward={"terms": (("exact_match", 1.0), ("recall", 0.5), ("format", 0.1))},
    )
