"""TEMPO, prefix-to-tree (METHODS.tsv S320).

Changes: at branch tokens the difference of node values is added to the group-relative advantage.
Chains are sampled apart; where those of a question begin with the same tokens, they become one tree.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/tempo.py --workdir=runs/tempo
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "tempo",
        credit={"estimator": "tempo", "scale": True, "whole_turn": False},
        rl={"merge_prefixes": 1e-3},  # nats: chains decoded in one batch agree to rounding
    )
