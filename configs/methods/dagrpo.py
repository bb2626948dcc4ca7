"""DAGRPO of DAGent (METHODS.tsv S335).

Changes: plans and the runs that execute them are compared with their own kind, faults of a plan cost.
Not covered: several agents: every rollout is a plan here, and an invalid turn its fault.

Command: python -m rlsearch.train --config=configs/methods/dagrpo.py --workdir=runs/dagrpo
"""

from configs.methods._base import method

FAMILY = "interface"


def get_config(base="quickstart"):
    return method(
        base,
        "dagrpo",
        credit={
            "estimator": "topology",
            "orchestrator": 0,
            "attenuation": 0.5,
            "penalty": 0.1,
            "cap": 3,
            "scale": True,
        },
        notes=(("support", "answered"), ("fault", "invalid")),
    )
