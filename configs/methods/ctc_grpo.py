"""CTC-GRPO of EIBench (METHODS.tsv S317).

Changes: centred rewards of turns are added to the outcome's advantage.
Not covered: the simulated user: a turn earns new evidence.

Command: python -m rlsearch.train --config=configs/methods/ctc_grpo.py --workdir=runs/ctc_grpo
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "ctc_grpo",
        credit={"estimator": "turn_centred", "coefficient": 0.5, "over": "episode", "scale": True},
        notes=(("step_reward", "new_evidence"),),
    )
