"""REINFORCE++ (arXiv 2501.03262).

Changes: no group: the outcome less the KL of this and later tokens, normalised over all tokens of the batch.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/reinforce_pp.py --workdir=runs/reinforce_pp
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "reinforce_pp",
        credit={"estimator": "reinforce_plus_plus", "discount": 1.0},
        loss={
            "kl": {"coefficient": 0.001, "estimator": "k1", "place": "reward", "weights": {"kind": "uniform"}},
        },
    )
