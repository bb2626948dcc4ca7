"""SPO (arXiv 2509.13232).

Changes: one rollout is compared with the question's value from earlier steps, and the differences are normalised
over the batch.
Not covered: its KL-adaptive memory: the memory is constant here; questions sampled by their value.

Command: python -m rlsearch.train --config=configs/methods/spo.py --workdir=runs/spo
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "spo",
        credit={"estimator": "persistent"},
        notes=(("baseline", "persistent_value"),),
        rl={"values": {"memory": 0.9, "prior": 0.5, "prior_weight": 1.0}},
    )
