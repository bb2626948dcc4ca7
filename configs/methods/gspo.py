"""GSPO (arXiv 2507.18071).

Changes: the importance ratio is that of the whole episode, its geometric mean over tokens, clipped within a few
1e-4.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/gspo.py --workdir=runs/gspo
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "gspo",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "level": "sequence",
            "clip": {"kind": "ppo", "low": 3e-4, "high": 4e-4},
            "reduction": {"kind": "sequence"},
        },
        rl={"updates_per_batch": 4},
    )
