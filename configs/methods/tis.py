"""Truncated importance sampling for a sampler that differs from the trainer (Yao et al., 2025).

Changes: ratios are relative to the trainer's own log-probabilities before the first update, and the surrogate is
weighted by the ratio of trainer to sampler, truncated at 2.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/tis.py --workdir=runs/tis
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "tis",
        credit={"estimator": "grpo", "scale": True},
        loss={"mismatch": {"kind": "truncated", "cap": 2.0}},
        rl={"updates_per_batch": 2},
    )
