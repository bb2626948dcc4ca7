"""The losses of a reward model, by hand."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.losses.reward import bradley_terry, regression

ALL = jnp.array([True, True])


@pytest.mark.parametrize(("margin", "expected"), [(0.0, math.log(1.25)), (math.log(2), math.log(1.5))])
def test_preferences_by_hand(margin, expected):
    """One pair whose better one is ahead by log 4: sigmoid is 4/5; by a margin of log 2, 2/3."""
    found = bradley_terry(jnp.array([math.log(8)]), jnp.array([math.log(2)]), jnp.array([True]), margin=margin)
    assert float(found) == pytest.approx(expected)


def test_a_mean_over_the_pairs_in_use():
    """log 2 where both are alike and log(5/4); a third pair, which is not in use, has scores that are not numbers."""
    better, worse = jnp.array([1.0, math.log(4), jnp.nan]), jnp.array([1.0, 0.0, 0.0])
    found = bradley_terry(better, worse, jnp.array([True, True, False]), margin=0.0)
    assert float(found) == pytest.approx((math.log(2) + math.log(1.25)) / 2)
    assert float(bradley_terry(better, worse, jnp.zeros(3, bool), margin=0.0)) == 0.0


def test_its_gradient_is_what_the_loser_of_the_bet_pays():
    """-(1 - sigmoid) for the better, as much for the worse: 1/5 of one pair of two."""
    slopes = jax.grad(lambda b, w: bradley_terry(b, w, ALL, margin=0.0), (0, 1))(
        jnp.array([math.log(4), 50.0]), jnp.array([0.0, 0.0])
    )
    np.testing.assert_allclose(slopes[0], [-0.1, 0.0], atol=1e-6)
    np.testing.assert_allclose(slopes[1], [0.1, 0.0], atol=1e-6)


def test_regression_by_hand():
    """Errors 1 and -3: (1 + 9) / 2; its gradient is the error, here of two."""
    score, target = jnp.array([2.0, 0.0]), jnp.array([1.0, 3.0])
    assert float(regression(score, target, ALL)) == 5.0
    assert jax.grad(regression)(score, target, ALL).tolist() == [1.0, -3.0]
    assert float(regression(score, jnp.array([1.0, jnp.nan]), jnp.array([True, False]))) == 1.0
    assert jax.grad(regression)(score, jnp.array([1.0, jnp.nan]), jnp.array([True, False])).tolist() == [2.0, 0.0]
