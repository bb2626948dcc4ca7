"""The expanders by the name that ``config.expander.kind`` gives: each is a function of what has grown so far."""

from __future__ import annotations

from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.sampling.expanders.chains import Group
from rlsearch.sampling.expanders.random_expansion import RandomExpansion
from rlsearch.sampling.grow import Expander

EXPANDERS = {"group": Group, "random_expansion": RandomExpansion}


def make(section: ConfigDict) -> Expander:
    """The expander that ``config.expander`` describes.

    Raises:
      InputError: no such expander, or settings that it does not take.
    """
    return configs.read_kind(section, EXPANDERS, "config.expander")
