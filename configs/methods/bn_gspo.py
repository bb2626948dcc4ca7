"""BN-GSPO of SenseNova-MARS (arXiv 2512.24330).

Changes: GSPO with advantages normalised in the group and then over the batch.
Not covered: image tools.

Command: python -m rlsearch.train --config=configs/methods/bn_gspo.py --workdir=runs/bn_gspo
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "bn_gspo",
        credit={"estimator": "batch_normalised"},
        loss={
            "level": "sequence",
            "clip": {"kind": "ppo", "low": 3e-4, "high": 4e-4},
            "reduction": {"kind": "sequence"},
        },
        rl={"updates_per_batch": 4},
    )
