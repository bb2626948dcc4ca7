"""What does not fit is refused before a rollout finds out."""

from __future__ import annotations

import pytest

from rlsearch.assemble import assemble
from rlsearch.errors import InputError
from tests import small


def test_buckets_that_hold_no_observation_are_refused(tmp_path):
    """An observation of 40 tokens is read with the token before it; 40 are one too few."""
    config = small.config(**{"sampling.buckets": (1, 40), "sampling.max_observation_tokens": 40})
    with pytest.raises(InputError, match=r"buckets \(1, 40\): the largest must hold an observation of 40.*41 or more"):
        assemble(config, tmp_path, writes=True)
    assemble(
        small.config(**{"sampling.buckets": (1, 41), "sampling.max_observation_tokens": 40}), tmp_path, writes=True
    )
