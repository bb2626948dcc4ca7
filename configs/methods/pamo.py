"""PAMO of MediateRec (METHODS.tsv S244).

Changes: an episode's advantage is spread over its turns by support, the total and a floor kept.
Not covered: rescoring with the history masked: supporting passages found are the support.

Command: python -m rlsearch.train --config=configs/methods/pamo.py --workdir=runs/pamo
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "pamo",
        credit={"estimator": "mass_preserving", "floor": 0.2, "over": "tokens", "scale": True},
        notes=(("support", "found_evidence"),),
    )
