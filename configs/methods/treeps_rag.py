"""TreePS-RAG (METHODS.tsv S270).

Changes: a step's advantage is what it adds to the mean outcome of the leaves below.
Not covered: its online expansion under a budget: places are drawn at random here.

Command: python -m rlsearch.train --config=configs/methods/treeps_rag.py --workdir=runs/treeps_rag
"""

from configs.methods._base import TREES, method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "treeps_rag",
        credit={"estimator": "tree_step", "scale": False, "shared_root": True},
        **TREES,
    )
