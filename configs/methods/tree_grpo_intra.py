"""Tree-GRPO's intra-tree advantage alone (arXiv 2509.21240).

Changes: normalised among the episodes of its tree; trees of equal rewards say nothing.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/tree_grpo_intra.py --workdir=runs/tree_grpo_intra
"""

from configs.methods._base import TREES, method

FAMILY = "tree-sampling"


def get_config(base="quickstart"):
    return method(
        base,
        "tree_grpo_intra",
        credit={"estimator": "tree_intra", "scale": True},
        **TREES,
    )
