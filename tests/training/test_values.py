"""Values of questions: means that forget."""

from __future__ import annotations

import json
from math import nan

import pytest

from rlsearch.errors import InputError
from rlsearch.training.values import ValueConfig, Values


def test_a_question_by_hand():
    """Prior 1/2 of weight 2; rewards 1, 1, 0; then, half of that forgotten, a 1.

    (1 + 2) / (2 + 3) = 3/5, then (3/2 + 1) / (5/2 + 1) = 5/7.
    """
    values = Values(ValueConfig(memory=0.5, prior=0.5, prior_weight=2.0))
    assert values.get("a") == 0.5
    values.known["a"] = (1.0, 2.0)
    values.config = ValueConfig(memory=1.0, prior=0.5, prior_weight=2.0)
    values.add("a", [1.0, 1.0, 0.0])
    assert values.get("a") == pytest.approx(3 / 5)
    values.config = ValueConfig(memory=0.5, prior=0.5, prior_weight=2.0)
    values.add("a", [1.0])
    assert values.get("a") == pytest.approx(5 / 7)
    assert values.get("b") == 0.5


def test_rewards_that_could_not_be_scored_change_nothing():
    values = Values(ValueConfig(memory=0.5, prior=0.25, prior_weight=1.0))
    values.add("a", [nan, nan])
    assert values.known == {}
    values.add("a", [nan, 1.0])
    assert values.get("a") == pytest.approx((0.125 + 1) / (0.5 + 1))


def test_a_record_goes_through_json():
    values, other = (Values(ValueConfig(memory=0.9, prior=0.5, prior_weight=1.0)) for _ in range(2))
    values.add("a", [1.0, 0.0])
    other.restore(json.loads(json.dumps(values.record())))
    assert other.known == values.known


@pytest.mark.parametrize("config", [(0.0, 0.5, 1.0), (1.5, 0.5, 1.0), (0.5, 0.5, 0.0)])
def test_a_memory_that_cannot_be_is_refused(config):
    with pytest.raises(InputError, match=r"config\.rl\.values: memory"):
        ValueConfig(*config)
