"""CISPO of MiniMax-M1 (arXiv 2506.13585).

Changes: the ratio is clipped as a weight without gradient, so that every token keeps its gradient; no bound below.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/cispo.py --workdir=runs/cispo
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "cispo",
        credit={"estimator": "grpo", "scale": True},
        loss={"clip": {"kind": "cispo", "low": 1.0, "high": 0.28}, "reduction": {"kind": "token"}},
        rl={"updates_per_batch": 2},
    )
