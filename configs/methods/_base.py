"""What the configs of methods share: a base run, and the few sections in which a method differs from it.

``--config=configs/methods/gspo.py`` changes the quickstart; with ``:hotpotqa_smollm2`` behind it, that config instead.
"""

from __future__ import annotations

import importlib
from typing import Any

from ml_collections import ConfigDict

from rlsearch.sampling.expanders import registry as expanders


def method(base: str, name: str, **sections: Any) -> ConfigDict:
    """The config ``configs/<base>.py`` with some sections changed.

    ``credit`` replaces its section, ``drop_equal`` is kept; ``scorer`` replaces its section, with answers in tags where
    it does not say how they stand; ``loss`` and ``rl`` change the keys that they name; every other section
    (``expander``, ``reward``, ``notes``) is replaced. A step with more rollouts gets more cache slots.
    """
    config = importlib.import_module(f"configs.{base}").get_config()
    config.name = f"{name}_{base}"
    for section, value in sections.items():
        if section in ("loss", "rl"):
            for key, new in value.items():
                config[section][key] = ConfigDict(new) if isinstance(new, dict) else new
        elif section == "credit":
            config.credit = ConfigDict({"drop_equal": config.credit.drop_equal, **value})
        elif section == "notes":
            config.notes = value
        elif section == "scorer":
            config.scorer = ConfigDict({"before": "<answer> ", "after": CLOSE[config.env.style], **value})
        else:
            config[section] = ConfigDict(value)
    rollouts = config.rl.batch.questions * expanders.make(config.expander).leaves
    if rollouts > config.sampling.slots[-1]:
        config.sampling.slots = (*config.sampling.slots[:-1], rollouts)
    return config


CLOSE = {"compact": "</answer>", "search_r1": " </answer>"}
"""How an answer ends, by the style of the episode."""

CRITIC = {
    "learning_rate": 3e-4, "warmup_steps": 10, "schedule": "constant", "b1": 0.9, "b2": 0.95, "weight_decay": 0.0,
    "clip_norm": 1.0,
}  # fmt: skip
"""The optimizer of a critic."""

TREES = {"expander": {"kind": "random_expansion", "trees": 2, "branches": 4, "rounds": 1}}
"""Tree-GRPO's rollouts, for methods that need branches."""
