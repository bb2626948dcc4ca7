"""ProRAG's two levels (METHODS.tsv S246).

Changes: a step-level process advantage is added to the outcome's.
Not covered: the process reward model trained on tree search: a turn earns new evidence.

Command: python -m rlsearch.train --config=configs/methods/pro_rag.py --workdir=runs/pro_rag
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "pro_rag",
        credit={"estimator": "process_outcome", "coefficient": 0.5, "to_go": True, "scale": True},
        notes=(("step_reward", "new_evidence"),),
    )
