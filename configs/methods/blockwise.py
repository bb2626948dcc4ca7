"""Blockwise Advantage Estimation (METHODS.tsv S299).

Changes: turns that search are credited for evidence, turns that answer for the answer, the latter against episodes
of the same evidence.
Not covered: objectives beyond these two.

Command: python -m rlsearch.train --config=configs/methods/blockwise.py --workdir=runs/blockwise
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "blockwise",
        credit={"estimator": "outcome_conditioned", "scale": True},
        notes=(("channel", "answers_now"),),
        reward={"terms": (("recall", 1.0), ("exact_match", 1.0))},
    )
