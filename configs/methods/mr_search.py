"""MR-Search (METHODS.tsv S083).

Changes: each turn's own reward, discounted to go, relative to the question's other episodes at that turn.
Not covered: episodes chained with a reflection in between.

Command: python -m rlsearch.train --config=configs/methods/mr_search.py --workdir=runs/mr_search
"""

from configs.methods._base import method

FAMILY = "context"


def get_config(base="quickstart"):
    return method(
        base,
        "mr_search",
        credit={"estimator": "turn_relative", "discount": 1.0},
        notes=(("step_reward", "new_evidence"),),
    )
