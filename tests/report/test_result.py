"""The header and the before/after table, finished and under way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.report import result
from rlsearch.report.read import Run


def evaluation(step, exact_match):
    hops = {"1": {"questions": 10, "exact_match": exact_match, "searches": 1.0}}
    whole = {"questions": 20, "exact_match": exact_match, "searches": 1.5, "by_hops": hops}
    return {"stage": "rl", "step": step, "name": "heldout", **whole}


def run(evaluations=(), summary=None):
    return Run("run", None, {}, list(evaluations), [], summary, ())


@given(st.integers(1, 1000), st.floats(0, 1))
def test_the_interval_holds_the_share_and_lies_in_zero_to_one(count, share):
    low, high = result.wilson(share, count)
    assert -1e-9 <= low <= share + 1e-9
    assert share - 1e-9 <= high <= 1 + 1e-9


def test_the_interval_equals_a_published_one():
    # Newcombe 1998, table I, method 3 (score): 81 of 263.
    assert result.wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)


def test_a_finished_run_compares_the_summary():
    finished = run(summary={"before": evaluation(0, 0.25), "after": evaluation(9, 0.75)})
    assert "went from 0.25 to 0.75, and" in result.headline(finished)
    assert "+0.50" in result.table(finished)
    assert "1 hop<" in result.table(finished)


def test_a_run_under_way_compares_its_latest_evaluation_and_says_which():
    going = run([evaluation(0, 0.5), evaluation(40, 0.25)])
    assert "0.50 to 0.25 by step 40" in result.headline(going)
    assert "\u22120.25" in result.table(going)
    assert "step 40" in result.table(going)


def test_a_run_with_one_evaluation_waits_for_the_second():
    assert "not yet" in result.table(run([evaluation(0, 0.5)]))
    assert "Before reinforcement learning" in result.headline(run([evaluation(0, 0.5)]))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(44.6, "45 s"), (333, "5 min 33 s"), (59.9, "1 min 00 s"), (11_100, "3 h 05 min")],
)
def test_durations(seconds, text):
    assert result.duration(seconds) == text
