"""LLDS (arXiv 2512.04220).

Changes: where a rollout has become less likely than before the update, the tokens that caused it are held up.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/llds.py --workdir=runs/llds
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "llds",
        credit={"estimator": "grpo", "scale": True},
        loss={"terms": ({"kind": "llds", "coefficient": 0.1, "gate": "sequence", "preserve": "good", "answers": 1.0},)},
        rl={"updates_per_batch": 2},
    )
