"""Tree-GRPO's inter-tree advantage alone (arXiv 2509.21240).

Changes: rollouts branch as a tree, and are normalised among all trees of the question.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/tree_grpo_inter.py --workdir=runs/tree_grpo_inter
"""

from configs.methods._base import TREES, method

FAMILY = "tree-sampling"


def get_config(base="quickstart"):
    return method(
        base,
        "tree_grpo_inter",
        credit={"estimator": "tree_inter", "scale": True},
        **TREES,
    )
