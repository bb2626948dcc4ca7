"""The environments by the name that ``config.env.kind`` gives: how an episode goes."""

from __future__ import annotations

from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.envs.search_r1 import SearchEnv, SearchEnvConfig
from rlsearch.envs.types import Env

KINDS = {"search_r1_v2": (SearchEnvConfig, SearchEnv)}


def make(section: ConfigDict) -> Env:
    """The environment that ``config.env`` describes.

    Raises:
      InputError: no such environment, or settings that it does not take.
    """
    settings = configs.read_kind(section, {kind: config for kind, (config, _) in KINDS.items()}, "config.env")
    return KINDS[section.kind][1](settings)
