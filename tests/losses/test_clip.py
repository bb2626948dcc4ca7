"""Each clip by numbers worked by hand, and by its slope."""

from __future__ import annotations

from functools import partial
from math import exp, log

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.losses import clip


def value_and_slope(function, ratio: float, advantage: float, spread: float = 0.0) -> tuple[float, float]:
    """The value at a ratio, and its derivative by the log-probability of the token."""

    def of(log_ratio):
        return function(log_ratio, jnp.float32(advantage), jnp.float32(spread))

    return tuple(float(x) for x in jax.value_and_grad(of)(jnp.float32(log(ratio))))


PPO = partial(clip.ppo, low=0.2, high=0.3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.5, 1.0, 1.3, 0.0),
        (0.5, 1.0, 0.5, 0.5),
        (1.5, -1.0, -1.5, -1.5),
        (0.5, -1.0, -0.8, 0.0),
        (1.1, 2.0, 2.2, 2.2),
        (0.9, -2.0, -1.8, -1.8),
    ],
)
def test_each_side_of_each_end_of_ppo(ratio, advantage, value, slope):
    assert value_and_slope(PPO, ratio, advantage) == pytest.approx((value, slope), rel=1e-5, abs=1e-6)


@given(st.floats(0.01, 5.0), st.floats(-3, 3), st.floats(0, 1), st.floats(0, 2))
def test_ppo_is_the_textbook_minimum(ratio, advantage, low, high):
    textbook = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    found, _ = value_and_slope(partial(clip.ppo, low=low, high=high), ratio, advantage)
    assert found == pytest.approx(textbook, rel=1e-4, abs=1e-4)


def test_without_a_clip():
    assert value_and_slope(clip.none, 7.0, -2.0) == pytest.approx((-14.0, -14.0), rel=1e-5)


def test_reinforce_has_the_slope_of_the_advantage_at_every_ratio():
    assert value_and_slope(clip.reinforce, exp(2.0), -3.0) == pytest.approx((-6.0, -3.0), rel=1e-5)
    assert value_and_slope(clip.reinforce, 1.0, 0.5) == pytest.approx((0.0, 0.5), rel=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (2.0, -1.0, -2.0, -2.0),  # below the bound: as PPO
        (5.0, -1.0, -3.0, 0.0),  # bound c A
        (5.0, -2.0, -6.0, 0.0),
        (0.5, -1.0, -0.8, 0.0),  # PPO's own clip
        (5.0, 1.0, 1.3, 0.0),  # the bound is for A < 0 alone
    ],
)
def test_dual_bounds_what_a_bad_episode_can_weigh(ratio, advantage, value, slope):
    """max(min(r A, clip(r) A), 3 A) where A < 0."""
    found = value_and_slope(partial(clip.dual, low=0.2, high=0.3, bound=3.0), ratio, advantage)
    assert found == pytest.approx((value, slope), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight"), [(1.1, 2.0, 1.1), (5.0, 2.0, 1.3), (5.0, -2.0, 1.3), (0.1, -1.0, 0.8)]
)
def test_cispo_clips_the_weight_and_keeps_the_slope(ratio, advantage, weight):
    """sg(clip(r, .8, 1.3)) A log pi: the slope is the clipped ratio times A, on whichever side."""
    value, slope = value_and_slope(partial(clip.cispo, low=0.2, high=0.3), ratio, advantage)
    assert slope == pytest.approx(weight * advantage, rel=1e-5)
    assert value == pytest.approx(weight * advantage * log(ratio), rel=1e-5)


def test_cispo_without_a_bound_below():
    assert value_and_slope(partial(clip.cispo, low=1.0, high=0.3), 0.01, 1.0)[1] == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (0.8, 1.0, 1.25, 1.25),  # an unlikely good token weighs 1 / r ...
        (1.25, 2.0, 1.6, 1.6),  # ... a likely one less
        (0.1, 1.0, 3.0, 3.0),  # 1 / r = 10 is held at 3, with its gradient
        (1.5, 1.0, 1 / 1.3, 0.0),  # beyond PPO's clip: none
        (1.5, -1.0, -1.5, -1.5),  # a bad token weighs r
        (5.0, -1.0, -3.0, -3.0),  # held at 3, with its gradient: dual clipping that is soft
        (0.5, -1.0, -0.8, 0.0),
    ],
)
def test_aspo_turns_the_ratio_round_for_good_tokens(ratio, advantage, value, slope):
    """low .2, high .3, bound 3."""
    found = value_and_slope(partial(clip.aspo, low=0.2, high=0.3, bound=3.0), ratio, advantage)
    assert found == pytest.approx((value, slope), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("advantage", "spread", "top", "bottom"),
    [
        (1.0, 0.0, 1.15, 0.85),  # .1 x (1 + .5)
        (2.0, 0.0, 1.2, 0.8),  # .1 x (1 + 1)
        (1.0, 0.25, 1.225, 0.775),  # .1 x 1.5 x (1 + 2 x .25): half the group right
        (9.0, 0.25, 1.825, 0.175),
        (99.0, 0.25, 8.575, 0.0),  # the lower end stops at 0
    ],
)
def test_elastic_widens_with_the_advantage_and_the_groups_variance(advantage, spread, top, bottom):
    """low = high = .1, magnitude .5, variance 2."""
    function = partial(clip.elastic, low=0.1, high=0.1, magnitude=0.5, variance=2.0)
    assert value_and_slope(function, 50.0, advantage, spread) == pytest.approx((top * advantage, 0.0), rel=1e-5)
    found = value_and_slope(function, 1e-4, -advantage, spread)
    assert found[0] == pytest.approx(-max(bottom, 1e-4) * advantage, rel=1e-4)


@given(st.sampled_from(sorted(clip.CLIPS)), st.floats(-2, 2))
def test_at_the_old_policy_the_slope_is_the_advantage(name, advantage):
    """All clips agree to first order before any update, whatever they do afterwards."""
    options = {"low": 0.2, "high": 0.3, "bound": 3.0, "magnitude": 0.1, "variance": 0.1}
    takes = {
        "none": (), "reinforce": (), "ppo": ("low", "high"), "cispo": ("low", "high"),
        "dual": ("low", "high", "bound"), "aspo": ("low", "high", "bound"),
        "elastic": ("low", "high", "magnitude", "variance"),
    }  # fmt: skip
    function = partial(clip.CLIPS[name], **{key: options[key] for key in takes[name]})
    assert value_and_slope(function, 1.0, advantage)[1] == pytest.approx(advantage, rel=1e-5, abs=1e-6)
