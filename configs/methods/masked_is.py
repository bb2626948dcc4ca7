"""Masked importance sampling, IcePop (Ling team, 2025).

Changes: tokens whose trainer and sampler probabilities differ by more than the bounds are left out of the
surrogate.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/masked_is.py --workdir=runs/masked_is
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "masked_is",
        credit={"estimator": "grpo", "scale": True},
        loss={"mismatch": {"kind": "masked", "low": 0.5, "high": 5.0}},
        rl={"updates_per_batch": 2},
    )
