"""PPO with a value head on the policy's own trunk (arXiv 1707.06347, section 5).

Changes: as ppo, but the critic is a head on the policy's hidden states, and its loss trains the trunk too; with
--config.rl.critic_trunk=stopped it trains the head alone.
Not covered: nothing.

Command: python -m rlsearch.train --config=configs/methods/ppo_shared.py --workdir=runs/ppo_shared
"""

from configs.methods._base import CRITIC, method

FAMILY = "interface"


def get_config(base="quickstart"):
    return method(
        base,
        "ppo_shared",
        credit={"estimator": "gae", "discount": 1.0, "lam": 1.0, "whiten": True, "step_reward": False},
        loss={
            "kl": {"coefficient": 0.001, "estimator": "k1", "place": "reward", "weights": {"kind": "uniform"}},
            "terms": ({"kind": "value", "coefficient": 0.5, "clip": 0.5},),
        },
        rl={"critic_optimizer": CRITIC, "critic_trunk": "shared"},
    )
