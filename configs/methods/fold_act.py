"""FoldAct's separate losses (arXiv 2512.22733).

Changes: two kinds of turns have losses of their own, each a mean over its own tokens.
Not covered: summaries and the consistency loss: turns that answer stand for summaries.

Command: python -m rlsearch.train --config=configs/methods/fold_act.py --workdir=runs/fold_act
"""

from configs.methods._base import method

FAMILY = "context"


def get_config(base="quickstart"):
    return method(
        base,
        "fold_act",
        credit={
            "estimator": "summary_action",
            "summary_weight": 0.5,
            "action_weight": 0.5,
            "apart": True,
            "scale": True,
        },
        loss={"reduction": {"kind": "token"}},
        notes=(("channel", "answers_now"),),
    )
