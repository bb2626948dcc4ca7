"""SPO++ (METHODS.tsv S322).

Changes: as SPO, standardised with each episode weighing as many times as it has tokens.
Not covered: evidence ordered by the policy's version: rollouts are of one version here.

Command: python -m rlsearch.train --config=configs/methods/spo_pp.py --workdir=runs/spo_pp
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "spo_pp",
        credit={"estimator": "persistent_weighted"},
        notes=(("baseline", "persistent_value"),),
        rl={"values": {"memory": 0.9, "prior": 0.5, "prior_weight": 1.0}},
    )
