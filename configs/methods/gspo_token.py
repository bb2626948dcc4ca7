"""GSPO-token (arXiv 2507.18071, section 4.3).

Changes: the value of the episode's ratio with each token's own gradient, so that tokens may have advantages of
their own.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/gspo_token.py --workdir=runs/gspo_token
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "gspo_token",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "level": "sequence_token",
            "clip": {"kind": "ppo", "low": 3e-4, "high": 4e-4},
            "reduction": {"kind": "sequence"},
        },
        rl={"updates_per_batch": 4},
    )
