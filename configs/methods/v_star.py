"""V-STAR (METHODS.tsv S063).

Changes: a turn is compared with its siblings under one parent.
Not covered: values that choose which prefix to deepen: places are drawn at random here.

Command: python -m rlsearch.train --config=configs/methods/v_star.py --workdir=runs/v_star
"""

from configs.methods._base import TREES, method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "v_star",
        credit={"estimator": "siblings", "scale": True, "shared_root": True},
        **TREES,
    )
