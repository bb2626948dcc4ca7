"""Self-Credit (METHODS.tsv S323).

Changes: turns are weighted by how much their support tells successes from failures.
Not covered: citations in the policy's summaries: supporting passages found stand for them.

Command: python -m rlsearch.train --config=configs/methods/self_credit.py --workdir=runs/self_credit
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "self_credit",
        credit={"estimator": "self_credit", "strength": 1.0, "floor": 0.0, "scale": True},
        notes=(("support", "found_evidence"), ("action", "query_number")),
    )
