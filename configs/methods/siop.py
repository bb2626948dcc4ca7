"""SIOP (arXiv 2605.04984).

Changes: turns earn changes of a potential alone, and no outcome is added: the log-likelihood of what the group answers,
its answers clustered by their normalised text and weighted by their share, without labels.
Not covered: clusters by meaning, and how far the evidence supports one.

Command: python -m rlsearch.train --config=configs/methods/siop.py --workdir=runs/siop
"""

from configs.methods._base import method

FAMILY = "reward"


def get_config(base="quickstart"):
    return method(
        base,
        "siop",
        credit={
            "estimator": "potential_shaping",
            "coefficient": 1.0,
            "discount": 1.0,
            "watermark": False,
            "to_go": False,
            "relative": True,
            "outcome": False,
            "scale": True,
        },
        notes=(("potential", "answer_likelihood"),),
        scorer={"model": "policy", "answers": "group", "length": "mean", "several": "logsumexp", "scale": "log"},
    )
