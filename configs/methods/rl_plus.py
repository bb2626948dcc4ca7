"""RL-PLUS (arXiv 2508.00222).

Changes: episodes of an external source have a mixture ratio and an advantage that is larger where the policy finds
a token unlikely.
Not covered: mixing external episodes into a batch: there are none, so that this is PPO's clip.

Command: python -m rlsearch.train --config=configs/methods/rl_plus.py --workdir=runs/rl_plus
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "rl_plus",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "clip": None,
            "terms": (
                {
                    "kind": "rl_plus",
                    "coefficient": 1.0,
                    "low": 0.2,
                    "high": 0.2,
                    "behaviour": "estimated",
                    "power": 0.5,
                },
            ),
        },
        notes=(("external", "nothing"),),
    )
