"""OREAL (arXiv 2502.06781).

Changes: right samples are cloned, wrong ones pushed down by a reshaped reward; KL to the start.
Not covered: the token-level reward model.

Command: python -m rlsearch.train --config=configs/methods/oreal.py --workdir=runs/oreal
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "oreal",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "clip": None,
            "kl": {"coefficient": 0.01, "estimator": "k2", "place": "loss", "weights": {"kind": "uniform"}},
            "terms": ({"kind": "oreal", "coefficient": 1.0, "above": 0.5, "negative": 1.0, "multiply": False},),
        },
    )
