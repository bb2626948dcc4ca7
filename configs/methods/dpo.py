"""Online iterative DPO (arXiv 2305.18290; METHODS.tsv S193).

Changes: the best and the worst rollout of a question are a pair; log-ratios to the starting policy.
Not covered: a preference model: the outcome decides.

Command: python -m rlsearch.train --config=configs/methods/dpo.py --workdir=runs/dpo
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "dpo",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "clip": None,
            "terms": ({"kind": "dpo", "coefficient": 1.0, "beta": 0.1, "pairs": "extremes"},),
        },
    )
