"""VPPO (arXiv 2601.18984).

Changes: the prefix of a wrong rollout before its first fault earns something; the penalty falls on what follows.
Not covered: the process reward model: a turn that finds no new evidence is a fault.

Command: python -m rlsearch.train --config=configs/methods/vppo.py --workdir=runs/vppo
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "vppo",
        credit={
            "estimator": "first_error",
            "prefix_reward": 0.5,
            "pass_mark": 1.0,
            "margin": 0,
            "keep_prefix": True,
        },
        notes=(("fault", "found_no_evidence"),),
    )
