"""Tree-GRPO (arXiv 2509.21240).

Changes: two trees a question that branch at random turns; normalised within the tree and among all trees of the
question, and added. The released code's second normalisation cancels its own between-tree part; this one does not.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/tree_grpo.py --workdir=runs/tree_grpo
"""

from configs.methods._base import TREES, method

FAMILY = "tree-sampling"


def get_config(base="quickstart"):
    return method(
        base,
        "tree_grpo",
        credit={"estimator": "tree_grpo", "scale": True},
        **TREES,
    )
