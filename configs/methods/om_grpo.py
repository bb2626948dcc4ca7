"""OM-GRPO's answer mask (arXiv 2608.03119).

Changes: tokens of the answer take no part in the loss.
Not covered: self-consensus in the place of labels.

Command: python -m rlsearch.train --config=configs/methods/om_grpo.py --workdir=runs/om_grpo
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "om_grpo",
        credit={"estimator": "answer_masked", "scale": True},
        notes=(("channel", "answers_now"),),
    )
