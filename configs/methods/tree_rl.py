"""TreeRL (arXiv 2506.11902).

Changes: a node's value is the mean of its leaves; its advantage is what it adds to the root's and to its parent's
value, divided by the root of its number of leaves.
Not covered: branching at uncertain tokens: the places are drawn at random here.

Command: python -m rlsearch.train --config=configs/methods/tree_rl.py --workdir=runs/tree_rl
"""

from configs.methods._base import TREES, method

FAMILY = "tree-sampling"


def get_config(base="quickstart"):
    return method(
        base,
        "tree_rl",
        credit={
            "estimator": "tree_rl",
            "global_weight": 1.0,
            "local_weight": 1.0,
            "reweight": True,
            "shared_root": True,
        },
        **TREES,
    )
