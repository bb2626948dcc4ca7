"""AT2PO (arXiv 2601.04767).

Changes: a turn's value is a softmax over its children's; the ratio is that of the turn, with narrow clips.
Not covered: expansion at turns of high entropy: places are drawn at random here.

Command: python -m rlsearch.train --config=configs/methods/at2po.py --workdir=runs/at2po
"""

from configs.methods._base import TREES, method

FAMILY = "tree-sampling"


def get_config(base="quickstart"):
    return method(
        base,
        "at2po",
        credit={
            "estimator": "child_softmax",
            "temperature": 1.0,
            "difference": False,
            "scale": True,
            "shared_root": True,
        },
        loss={"level": "turn", "clip": {"kind": "ppo", "low": 3e-3, "high": 4e-3}, "reduction": {"kind": "node"}},
        **TREES,
    )
