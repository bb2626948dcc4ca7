"""TEMPO, prefix-to-tree (METHODS.tsv S320).

Changes: at branch tokens the difference of node values is added to the group-relative advantage.
Not covered: merging chains that happen to share a prefix (tree.merge does it); rollouts branch by themselves here.

Command: python -m rlsearch.train --config=configs/methods/tempo.py --workdir=runs/tempo
"""

from configs.methods._base import TREES, method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "tempo",
        credit={"estimator": "tempo", "scale": True, "whole_turn": False},
        **TREES,
    )
