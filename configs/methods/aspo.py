"""ASPO (arXiv 2510.06062).

Changes: the ratio of tokens with a positive advantage is inverted, so that unlikely ones gain most; a soft bound
keeps gradients.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/aspo.py --workdir=runs/aspo
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "aspo",
        credit={"estimator": "grpo", "scale": True},
        loss={"clip": {"kind": "aspo", "low": 0.2, "high": 0.28, "bound": 3.0}},
        rl={"updates_per_batch": 2},
    )
