"""Turn-level returns, each against its peers' at the same turn.

Changes: what a turn earns and what follows is compared among the question's episodes at that turn.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/turn_return.py --workdir=runs/turn_return
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "turn_return",
        credit={"estimator": "turn_return", "discount": 1.0, "scale": True},
        notes=(("step_reward", "new_evidence"),),
    )
