"""FC-SWE's active set (METHODS.tsv S292).

Changes: every executed attempt keeps its own reward, against the mean of all executed attempts of the question.
Not covered: retrying after a failed verification: each rollout is one attempt.

Command: python -m rlsearch.train --config=configs/methods/fc_swe.py --workdir=runs/fc_swe
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "fc_swe",
        credit={"estimator": "active_set", "scale": True},
        notes=(("attempt", "attempt"),),
    )
