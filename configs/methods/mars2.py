"""MARS^2 (METHODS.tsv S024).

Changes: path-level group advantages from rewards shaped along the tree.
Not covered: several policies on one tree.

Command: python -m rlsearch.train --config=configs/methods/mars2.py --workdir=runs/mars2
"""

from configs.methods._base import TREES, method

FAMILY = "tree-sampling"


def get_config(base="quickstart"):
    return method(
        base,
        "mars2",
        credit={"estimator": "path_level", "mix": 0.5, "gain": 0.5, "scale": True, "shared_root": True},
        **TREES,
    )
