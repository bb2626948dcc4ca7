"""SCRL (METHODS.tsv S249).

Changes: rewards are normalised apart at each subproblem, here the turn's, and credit only its own tokens.
Not covered: building chains of subproblems; the turn stands for one.

Command: python -m rlsearch.train --config=configs/methods/scrl.py --workdir=runs/scrl
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "scrl",
        credit={"estimator": "subproblem", "progress": False, "scale": True},
        notes=(("subproblem", "number"), ("step_reward", "new_evidence")),
    )
