"""Dual-clip PPO (arXiv 1912.09729), as Tree-GRPO's release uses it.

Changes: where the advantage is negative, a token weighs at most three times as much as at ratio 1.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/dual_clip.py --workdir=runs/dual_clip
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "dual_clip",
        credit={"estimator": "grpo", "scale": True},
        loss={"clip": {"kind": "dual", "low": 0.2, "high": 0.2, "bound": 3.0}},
        rl={"updates_per_batch": 2},
    )
