"""A-LoL (arXiv 2305.14718).

Changes: the episode is one action: the ratio to the reference policy weighs its log-likelihood times its advantage,
and episodes below the reference's value are dropped.
Not covered: data collected beforehand: rollouts of the policy are learnt from.

Command: python -m rlsearch.train --config=configs/methods/a_lol.py --workdir=runs/a_lol
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "a_lol",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "clip": None,
            "terms": ({"kind": "a_lol", "coefficient": 1.0, "ratio": "sequence", "clip": 0.9, "baseline": "mean"},),
        },
    )
