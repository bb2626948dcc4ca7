"""DAPO (arXiv 2503.14476).

Changes: clip-higher, every token of the batch of equal weight, no KL; groups of equal rewards are left out of every
denominator.
Not covered: groups of equal rewards are not replaced by sampling further questions; the soft penalty on overlong
answers.

Command: python -m rlsearch.train --config=configs/methods/dapo.py --workdir=runs/dapo
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "dapo",
        credit={"estimator": "grpo", "scale": True},
        loss={"clip": {"kind": "ppo", "low": 0.2, "high": 0.28}, "reduction": {"kind": "token"}},
    )
