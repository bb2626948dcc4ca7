"""Critical-token KL (METHODS.tsv S168).

Changes: the KL penalty is relaxed at tokens that the reference policy is unsure of.
Not covered: the paper's arithmetic task.

Command: python -m rlsearch.train --config=configs/methods/critical_token_kl.py --workdir=runs/critical_token_kl
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "critical_token_kl",
        credit={"estimator": "grpo", "scale": True},
        loss={
            "kl": {
                "coefficient": 0.01,
                "estimator": "k3",
                "place": "loss",
                "weights": {"kind": "critical", "power": 1.0, "vocabulary": 1700},
            }
        },
    )
