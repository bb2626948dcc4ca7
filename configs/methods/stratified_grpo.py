"""Stratified GRPO (METHODS.tsv S032).

Changes: rewards are normalised among the episodes of the question that searched equally often, blended with the
whole group's estimate.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/stratified_grpo.py --workdir=runs/stratified_grpo
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "stratified_grpo",
        credit={"estimator": "stratified", "blend": 0.8},
        notes=(("stratum", "searches"),),
    )
