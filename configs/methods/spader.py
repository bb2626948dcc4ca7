"""SPADER (METHODS.tsv S258).

Changes: each turn is baselined by its peers' returns at the same step; a turn earns the evidence that it is first
to find.
Not covered: rarity over the group's episodes: evidence is counted within an episode.

Command: python -m rlsearch.train --config=configs/methods/spader.py --workdir=runs/spader
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "spader",
        credit={"estimator": "step_peer", "discount": 1.0, "scale": True},
        notes=(("step_reward", "new_evidence"),),
    )
