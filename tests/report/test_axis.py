"""Axes hold their values, ticks are round and inside, smoothing keeps constants and gaps."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.report.axis import axis, short, smooth

VALUES = st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), min_size=1, max_size=20)


@given(VALUES, st.booleans())
def test_values_and_ticks_lie_on_the_axis(values, may_log):
    y = axis(values, 150, 10, may_log=may_log)
    for value in [*values, *y.ticks(4)]:
        assert 10 - 1e-3 <= y(value) <= 150 + 1e-3
    assert len(y.ticks(4)) >= 2
    order = sorted(values)
    assert all(y(a) >= y(b) for a, b in itertools.pairwise(order))


def test_a_wide_range_above_zero_is_logarithmic_only_when_allowed():
    assert axis([1e-3, 1.0], 0, 1, may_log=True).log
    assert not axis([1e-3, 1.0], 0, 1, may_log=False).log
    assert not axis([0.0, 1.0], 0, 1, may_log=True).log


@given(st.floats(-100, 100), st.integers(1, 200))
def test_a_constant_stays_itself(value, count):
    assert smooth([value] * count, log=False) == pytest.approx([value] * count)


def test_a_mean_on_a_log_scale_is_geometric_and_gaps_stay():
    values = [1.0] * 25 + [None] + [100.0] * 25
    means = smooth(values, log=True)
    assert means[25] is None
    assert smooth([1.0] * 49 + [1e6], log=True)[-1] == pytest.approx(10 ** (6 * 3 / 6))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.1234, "0.123"),
        (-2.5, "\u22122.5"),
        (1234, "1,234"),
        (17400, "17.4k"),
        (3.2e6, "3.2M"),
        (2e-6, "2e\u22126"),
    ],
)
def test_numbers_are_short(value, text):
    assert short(value) == text
