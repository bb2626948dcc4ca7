"""Step-wise MIG (arXiv 2602.01034).

Changes: a step earns only what exceeds the best potential so far, which is the golden answer's log-likelihood, a token
on average, under the policy that wrote the step.
Not covered: the gated SFT term; masks to the thought.

Command: python -m rlsearch.train --config=configs/methods/mig.py --workdir=runs/mig
"""

from configs.methods._base import method

FAMILY = "reward"


def get_config(base="quickstart"):
    return method(
        base,
        "mig",
        credit={
            "estimator": "potential_shaping",
            "coefficient": 0.5,
            "discount": 1.0,
            "watermark": True,
            "to_go": False,
            "relative": False,
            "outcome": True,
            "scale": True,
        },
        notes=(("potential", "answer_likelihood"),),
        scorer={"model": "policy", "answers": "gold", "length": "mean", "several": "max", "scale": "log"},
    )
