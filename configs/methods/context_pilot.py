"""ContextPilot's credit (METHODS.tsv S100).

Changes: the advantage of a turn is the mean over the episodes through it.
Not covered: tools that edit the context, and branches at those edits.

Command: python -m rlsearch.train --config=configs/methods/context_pilot.py --workdir=runs/context_pilot
"""

from configs.methods._base import TREES, method

FAMILY = "context"


def get_config(base="quickstart"):
    return method(
        base,
        "context_pilot",
        credit={"estimator": "through_node", "scale": True},
        **TREES,
    )
