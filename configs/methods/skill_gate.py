"""SkillGate's channels (METHODS.tsv S250).

Changes: turns that search are credited by evidence alone, turns that answer by the answer alone.
Not covered: skills by name: searching stands for reading a skill.

Command: python -m rlsearch.train --config=configs/methods/skill_gate.py --workdir=runs/skill_gate
"""

from configs.methods._base import method

FAMILY = "advantage"


def get_config(base="quickstart"):
    return method(
        base,
        "skill_gate",
        credit={"estimator": "channels", "scale": True},
        notes=(("channel", "answers_now"),),
        reward={"terms": (("recall", 1.0), ("exact_match", 1.0))},
    )
