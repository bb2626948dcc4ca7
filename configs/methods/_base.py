"""What the configs of methods share: a base run, and the few sections in which a method differs from it.

``--config=configs/methods/gspo.py`` changes the quickstart; with ``:hotpotqa_smollm2`` behind it, that config instead.
"""

from __future__ import annotations

import importlib
from typing import Any

from ml_collections import ConfigDict


def method(base: str, name: str, **sections: Any) -> ConfigDict:
    """The config ``configs/<base>.py`` with some sections changed.

    ``credit`` replaces its section, ``drop_equal`` is kept; ``loss`` and ``rl`` change the keys that they name; every
    other section (``expander``, ``reward``, ``notes``, ``sampling``) is replaced.
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
        else:
            config[section] = ConfigDict(value)
    return config


TREES = {"expander": {"kind": "random_expansion", "trees": 2, "branches": 4, "rounds": 1}}
"""Tree-GRPO's rollouts, for methods that need branches."""

SLOTS = (16, 64, 160)
"""Cache slots that they take in the quickstart."""
