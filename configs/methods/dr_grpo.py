"""Dr. GRPO (arXiv 2503.20783).

Changes: no division by the group's deviation, and every episode divided by one constant length, so that neither
easy questions nor short wrong answers weigh more.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/dr_grpo.py --workdir=runs/dr_grpo
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "dr_grpo",
        credit={"estimator": "grpo", "scale": False},
        loss={"reduction": {"kind": "constant", "length": 40.0}},
    )
