"""Quantiles and whitening by hand."""

from __future__ import annotations

from math import nan, sqrt

import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.credit.algebra import Episodes
from rlsearch.credit.vector import quantile_whitened
from rlsearch.errors import InputError
from tests.credit.hand import credit, ends, outcomes


def whitened(*rows: tuple, weights=(1.0, 1.0), magnitude=0.5, shrinkage=0.0) -> list[float]:
    """Rows of question, first and second term."""
    nodes = outcomes(*[(q, terms) for q, *terms in rows])
    return ends(nodes, "quantile_whitened", weights=weights, magnitude=magnitude, shrinkage=shrinkage)


@pytest.mark.parametrize("magnitude", [0.0, 0.5, 1.0])
def test_one_term_of_two_values_is_grpo(magnitude):
    """1,0,0,0: mean 1/4, deviation sqrt(3)/4; whatever has no weight is not read."""
    rows = [(0, 1, 5), (0, 0, nan), (0, 0, 7), (0, 0, 9)]
    found = whitened(*rows, weights=(1.0, 0.0), magnitude=magnitude)
    assert found == pytest.approx([sqrt(3), *[-1 / sqrt(3)] * 3], rel=1e-5)


def test_magnitude_blends_rank_and_size():
    """0, 1, 100: shares 1/6, 1/2, 5/6, so normal scores -a, 0, a, which are -sqrt(1.5), 0, sqrt(1.5) at deviation 1.

    Sizes: mean 101/3, variance (0 + 1 + 10000) / 3 - (101/3)^2. Whitening brings what is blended back to deviation 1.
    """
    rows = [(0, 0, 0), (0, 1, 0), (0, 100, 0)]
    rank = np.array([-1, 0, 1]) * sqrt(1.5)
    size = (np.array([0, 1, 100]) - 101 / 3) / sqrt(10001 / 3 - (101 / 3) ** 2)
    for magnitude in (0.0, 0.25, 1.0):
        expected = magnitude * size + (1 - magnitude) * rank
        expected = expected / expected.std()
        assert whitened(*rows, magnitude=magnitude) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_ties_count_half():
    """1, 1, 2, 4: shares 1/4, 1/4, 5/8, 7/8; normal quantiles -.67449 twice, .31864, 1.15035, then standardised."""
    scores = np.array([-0.67449, -0.67449, 0.31864, 1.15035])
    expected = (scores - scores.mean()) / scores.std()
    found = whitened((0, 1, 0), (0, 1, 0), (0, 2, 0), (0, 4, 0), magnitude=0.0)
    assert found == pytest.approx(expected, abs=1e-4)


def test_terms_that_do_not_correlate_are_added():
    """+-1 in both and orthogonal: C is I."""
    assert whitened((0, 1, 1), (0, 1, 0), (0, 0, 1), (0, 0, 0)) == pytest.approx([2, 0, 0, -2], abs=1e-5)


def test_the_same_reward_twice_counts_less_than_twice():
    """C = [[1, 1], [1, 1]] spans one direction of size 2: (a, a) becomes (a, a) / sqrt(2). Shrunk to I: 2a."""
    rows = [(0, 1, 1), (0, 0, 0)]
    assert whitened(*rows) == pytest.approx([sqrt(2), -sqrt(2)], rel=1e-4)
    assert whitened(*rows, shrinkage=1.0) == pytest.approx([2, -2])


def test_opposite_rewards_cancel():
    assert whitened((0, 1, 0), (0, 0, 1)) == pytest.approx([0, 0], abs=1e-5)


def test_whitening_by_hand():
    """z = 1,1,-1,-1 and 3s,-s,-s,-s with s = 1/sqrt(3): their product has mean (3s - s + s + s) / 4 = s.

    1 + s is the eigenvalue of (1, 1), so the sum is (z1 + z2) / sqrt(1 + s). With weights 1 and 0.5 the difference
    counts too: .75 (z1 + z2) / sqrt(1 + s) + .25 (z1 - z2) / sqrt(1 - s). Half shrinkage halves s.
    """
    rows, s = [(0, 1, 1), (0, 1, 0), (0, 0, 0), (0, 0, 0)], 1 / sqrt(3)
    first, second = np.array([1, 1, -1, -1]), np.array([3 * s, -s, -s, -s])
    together, apart = (first + second) / sqrt(1 + s), (first - second) / sqrt(1 - s)
    assert whitened(*rows) == pytest.approx(together, rel=1e-4)
    assert whitened(*rows, weights=(1.0, 0.5)) == pytest.approx(0.75 * together + 0.25 * apart, rel=1e-4)
    assert whitened(*rows, shrinkage=0.5) == pytest.approx((first + second) / sqrt(1 + s / 2), rel=1e-4)


def test_questions_are_whitened_with_those_of_the_same_active_terms():
    """The second question varies in its first term alone, and is GRPO's; the third in none, and is exactly 0.

    The fourth opposes the terms, and with the first, which aligns them, has no correlation at all: plain sums.
    """
    rows = [(0, 1, 1), (0, 0, 0), (1, 1, 3), (1, 0, 3), (2, 0.1, 0.6), (2, 0.1, 0.6), (3, 1, 0), (3, 0, 1)]
    found = whitened(*rows)
    assert found == pytest.approx([2, -2, 1, -1, 0, 0, 0, 0], abs=1e-4)
    assert found[4:6] == [0, 0]


def test_groups_without_a_signal():
    """B087: a group of one, one among the unscored, and questions that alternate (B089)."""
    nodes = outcomes((0, (nan, 1)), (1, (1, 0)), (0, (1, 0)), (1, (1, 0)))
    found = credit(nodes, "quantile_whitened", weights=(1.0, 1.0), magnitude=0.5, shrinkage=0.0, drop_equal=True)
    assert not found.advantage.node.any()
    assert not found.kept.any()


def test_a_penalty_and_too_many_terms_are_refused():
    """B080."""
    nodes = outcomes((0, (1.0, 0.0)))
    with pytest.raises(InputError, match=r"quantile_whitened.*use KL in the loss"):
        quantile_whitened(Episodes(nodes, (1.0, 1.0), None, jnp.zeros(2)), magnitude=0.5, shrinkage=0.0)
    nodes = outcomes((0, [0.0] * 9))
    with pytest.raises(InputError, match="9 reward terms, and there may be 8"):
        quantile_whitened(Episodes(nodes, (1.0,) * 9, None, None), magnitude=0.5, shrinkage=0.0)
