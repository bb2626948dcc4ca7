"""StepSearch (arXiv 2505.15107).

Changes: each search earns the supporting passages it adds less the share of hits seen before, as discounted returns
of turns.
Not covered: embeddings of sub-questions: information is counted in supporting passages; its PPO is ppo.py with the
same notes.

Command: python -m rlsearch.train --config=configs/methods/step_search.py --workdir=runs/step_search
"""

from configs.methods._base import method

FAMILY = "reward"


def get_config(base="quickstart"):
    return method(
        base,
        "step_search",
        credit={"estimator": "step_return", "discount": 1.0, "scale": True},
        notes=(("step_reward", "gain_less_repetition"),),
    )
