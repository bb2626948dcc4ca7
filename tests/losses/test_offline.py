"""OREAL, A-LoL and RL-PLUS, worked by hand."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest

from rlsearch.errors import InputError
from tests.losses.hand import end, made, node, value_and_slope

OREAL = {"above": 0.5, "negative": 0.5, "multiply": False}
A_LOL = {"ratio": "sequence", "clip": 0.9, "baseline": "mean"}
RL_PLUS = {"low": 0.2, "high": 0.2, "behaviour": "estimated", "power": 0.5}


def answers(*rewards: float, **notes: list[float]):
    """An episode of one token for each reward, with its notes."""
    return [
        end(1, reward, index, **{name: column[index] for name, column in notes.items()})
        for index, reward in enumerate(rewards)
    ]


def test_oreal():
    """arXiv 2502.06781: one of four is right. It is cloned, 0.3; the wrong ones have A = 0 - 1 / 3.

    Their log-ratios to the policy before are 0.1, 0.2 and -0.6, mean -0.1, of which half counts: the loss is 0.3 - 0.5
    x (-1 / 3) x -0.1, and its gradient by a wrong token 0.5 x 1 / 3 / 3.
    """
    given = made(answers(1.0, 0.0, 0.0, 0.0), logp=[-0.3, -1.0, -1.0, -1.0], old=[-0.9, -1.1, -1.2, -0.4])
    value, slope = value_and_slope("oreal", given, **OREAL)
    assert value == pytest.approx(0.3 - 0.5 / 3 * 0.1, rel=1e-5)
    np.testing.assert_allclose(slope, [-1, *[0.5 / 9] * 3], rtol=1e-5)


def test_oreal_with_cloning_weighed_by_the_advantage():
    """Two of three are right: A = 1 - 1 / 2 for them, 0 - 2 / 2 for the other."""
    given = made(answers(1.0, 1.0, 0.0), logp=[-0.2, -0.6, -1.0], old=[-0.2, -0.6, -1.3])
    value, slope = value_and_slope("oreal", given, **{**OREAL, "multiply": True})
    assert value == pytest.approx(0.5 * 0.4 + 0.5 * 0.3, rel=1e-5)
    np.testing.assert_allclose(slope, [-0.25, -0.25, 0.5], rtol=1e-5)


def test_oreal_on_shared_tokens():
    """A search of one token that a right and a wrong answer share is cloned for one, and pushed down for the other.

    Positives have two tokens, negatives two; A = -1 for the wrong: -1 / 2 + 0.5 x 1 / 2 at the shared token.
    """
    given = made([node(1, end(1, 1.0, 0), end(1, 0.0, 1))], logp=[-0.2, -0.4, -0.8])
    value, slope = value_and_slope("oreal", given, **OREAL)
    assert value == pytest.approx(0.3, rel=1e-5)
    np.testing.assert_allclose(slope, [-0.25, -0.5, 0.25], rtol=1e-5)


@pytest.mark.parametrize(("rewards", "slope"), [((1.0,), [-1.0]), ((0.0,), [0.0]), ((0.0, 0.0), [0.0, 0.0])])
def test_oreal_of_one_or_of_none_that_is_right(rewards, slope):
    """A right episode alone is still cloned. A wrong one alone has nothing to be compared with, and where all are
    wrong each is as good as the others.
    """
    count = len(rewards)
    given = made(answers(*rewards), logp=[-0.2] * count, old=[-0.7] * count)
    value, found = value_and_slope("oreal", given, **OREAL)
    assert value == pytest.approx(-0.2 * slope[0])
    np.testing.assert_allclose(found, slope)


def test_oreal_of_a_right_episode_alone_has_no_advantage_to_weigh_it_by():
    given = made(answers(1.0), logp=[-0.2])
    assert value_and_slope("oreal", given, **{**OREAL, "multiply": True}) == (0.0, [0.0])


def test_oreal_counts_what_could_be_scored():
    """A third could not be: A of the wrong one is -1 / 1."""
    given = made(answers(1.0, 0.0, float("nan")), logp=[-0.2, -0.2, -9.0], old=[-0.2, -0.6, -1.0])
    value, slope = value_and_slope("oreal", given, **OREAL)
    assert value == pytest.approx(0.2 + 0.5 * 0.4, rel=1e-5)
    np.testing.assert_allclose(slope, [-1, 0.5, 0], rtol=1e-5)


def test_a_lol():
    """arXiv 2305.14718: outcomes 1, 0.5 and 0, V their mean, so A = 0.5 for the first and no other is learned from.

    Its tokens: log-likelihood -0.5, log-ratio to the reference 0.2 + 0.1. The ratio weighs and has no gradient.
    """
    trees = [end(2, 1.0, 0), end(1, 0.5, 1), end(1, 0.0, 2)]
    given = made(trees, logp=[-0.2, -0.3, -1.0, -1.0], reference=[-0.4, -0.4, -1.5, -1.5])
    value, slope = value_and_slope("a_lol", given, **A_LOL)
    assert value == pytest.approx(0.5 * exp(0.3) * 0.5, rel=1e-5)
    np.testing.assert_allclose(slope, [-0.5 * exp(0.3)] * 2 + [0, 0], rtol=1e-5)


def test_a_lol_with_a_ratio_for_each_token():
    given = made([end(2, 1.0, 0), end(1, 0.0, 1)], logp=[-0.2, -0.3, -1.0], reference=[-0.4, -0.4, -1.5])
    value, slope = value_and_slope("a_lol", given, **{**A_LOL, "ratio": "token"})
    assert value == pytest.approx(0.5 * (exp(0.2) * 0.2 + exp(0.1) * 0.3), rel=1e-5)
    np.testing.assert_allclose(slope, [-0.5 * exp(0.2), -0.5 * exp(0.1), 0], rtol=1e-5)


@pytest.mark.parametrize(("ratio", "log_ratio", "weight"), [("sequence", 0.0, 1.0), ("sequence", 9.0, 1.9),
                                                            ("sequence", 99.0, 1.9), ("token", -9.0, 0.1)])  # fmt: skip
def test_a_lol_holds_the_ratio(ratio, log_ratio, weight):
    """Within 1 - 0.9 and 1 + 0.9, however far the policy is from the reference."""
    given = made([end(1, 1.0, 0), end(1, 0.0, 1)], logp=[-0.2, -1.0], reference=[-0.2 - log_ratio, -1.0])
    value, slope = value_and_slope("a_lol", given, **{**A_LOL, "ratio": ratio})
    assert value == pytest.approx(0.5 * weight * 0.2, rel=1e-5)
    np.testing.assert_allclose(slope, [-0.5 * weight, 0], rtol=1e-5)


def test_a_lol_is_a_mean_over_what_is_not_dropped():
    """Value 0.25 by the note: A = 0.75 and 0.25, and -0.25 is dropped, and not counted."""
    given = made(answers(1.0, 0.5, 0.0, baseline=[0.25] * 3), logp=[-0.2, -0.4, -1.0])
    value, slope = value_and_slope("a_lol", given, **{**A_LOL, "baseline": "note"})
    assert value == pytest.approx((0.75 * 0.2 + 0.25 * 0.4) / 2, rel=1e-5)
    np.testing.assert_allclose(slope, [-0.375, -0.125, 0], rtol=1e-5)
    free = value_and_slope("a_lol_free", given, baseline="note")
    assert free[0] == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(free[1], slope, rtol=1e-6)


def test_an_advantage_of_rounding_is_none():
    """The last outcome is the mean of the four, but for its last bit: only the third is good, A = 0.7 - 0.8 / 3."""
    given = made(answers(0.0, 0.1, 0.7, 0.8 / 3), logp=[-1.0, -1.0, -0.6, -1.0])
    value, _ = value_and_slope("a_lol_free", given, baseline="mean")
    assert value == pytest.approx((0.7 - 0.8 / 3) * 0.6, rel=1e-5)


@pytest.mark.parametrize("rewards", [(0.7,), (0.7, 0.7, 0.7), (float("nan"), float("nan"))])
def test_a_lol_of_equal_outcomes_is_nothing(rewards):
    given = made(answers(*rewards), logp=[-1.0] * len(rewards), reference=[-2.0] * len(rewards))
    assert value_and_slope("a_lol", given, **A_LOL) == (0.0, [0.0] * len(rewards))
    assert value_and_slope("a_lol_free", given, baseline="mean") == (0.0, [0.0] * len(rewards))


def external(*of: float, rewards=(1.0, 0.0), **how):
    return made(answers(*rewards, external=list(of)), **how)


def test_rl_plus():
    """arXiv 2508.00222: the first episode is external, pi = 0.2, pi_old = 0.3, omega = (0.3 + 1) / 2, A = 1 / 2.

    So 2 x 0.2 / (0.3 + 0.65) x 0.5 x sqrt(0.8), which is also its gradient by log pi, times the weight 1 / 2. The
    other is PPO's: ratio 1.1, A = -1 / 2.
    """
    how = {"logp": [log(0.2), log(0.55)], "old": [log(0.3), log(0.5)]}
    value, slope = value_and_slope("rl_plus", external(1.0, 0.0, **how), **RL_PLUS)
    given = 0.4 / 0.95 * 0.5 * sqrt(0.8)
    assert value == pytest.approx(-(given - 0.5 * 1.1) / 2, rel=1e-5)
    np.testing.assert_allclose(slope, [-given / 2, 0.55 / 2], rtol=1e-5)


def test_rl_plus_with_the_probability_that_came_with_the_token():
    """omega = 0.1: 2 x 0.2 / (0.3 + 0.1); with power 0 nothing else."""
    how = {"logp": [log(0.2), log(0.5)], "old": [log(0.3), log(0.5)], "behaviour": [log(0.1), log(0.5)]}
    value, _ = value_and_slope(
        "rl_plus", external(1.0, 0.0, **how), **{**RL_PLUS, "behaviour": "recorded", "power": 0.0}
    )
    assert value == pytest.approx(-(1.0 * 0.5 - 0.5) / 2, abs=1e-6)


def test_rl_plus_clips_own_episodes_alone():
    """Ratio 2, A = 1 / 2: an own episode is held at 1.2, and an external one is not."""
    how = {"logp": [log(0.8), log(0.5)], "old": [log(0.4), log(0.5)]}
    own = value_and_slope("rl_plus", external(0.0, 0.0, **how), **RL_PLUS)
    assert own[0] == pytest.approx(-(1.2 * 0.5 - 0.5) / 2, rel=1e-5)
    assert own[1][0] == 0.0
    given = 1.6 / (0.4 + 0.7) * 0.5 * sqrt(0.2)
    assert value_and_slope("rl_plus", external(1.0, 0.0, **how), **RL_PLUS)[1][0] == pytest.approx(-given / 2, rel=1e-5)


def test_rl_plus_on_tokens_that_own_and_external_episodes_share():
    """Four pairs: the shared token is external with A = 1 / 2 and own with A = -1 / 2."""
    answer = [end(1, 1.0, 0, external=1.0), end(1, 0.0, 1, external=0.0)]
    given = made([node(1, *answer)], logp=[log(0.5)] * 3)
    _, slope = value_and_slope("rl_plus", given, **{**RL_PLUS, "power": 0.0})
    mixed = 1.0 / (0.5 + 0.75) * 0.5
    np.testing.assert_allclose(slope, [-(mixed - 0.5) / 4, -mixed / 4, 0.5 / 4], rtol=1e-5)


@pytest.mark.parametrize(
    ("behaviour", "logp", "ratio"),
    [("estimated", 1e-7, 0.0), ("estimated", -200.0, 0.0), ("recorded", 1e-7, 0.0), ("recorded", -40.0, 2.0)],
)
def test_rl_plus_at_probabilities_that_round_to_one_or_zero(behaviour, logp, ratio):
    """The policy before was at exp(-200), the source at exp(-40). What has become certain weighs (1 - 1)^0.5 = 0."""
    how = {"logp": [logp, -1.0], "old": [-200.0, -1.0], "behaviour": [-40.0, -1.0]}
    value, slope = value_and_slope("rl_plus", external(1.0, 0.0, **how), **{**RL_PLUS, "behaviour": behaviour})
    assert value == pytest.approx(-(0.5 * ratio - 0.5) / 2, rel=1e-5)
    np.testing.assert_allclose(slope, [-0.25 * ratio, 0.25], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a_lol", {**A_LOL, "ratio": "tokens"}, r"a_lol: ratio 'tokens': unknown; did you mean 'token'\?"),
        ("a_lol", {**A_LOL, "clip": 0.0}, r"a_lol: clip 0\.0 must be above 0"),
        ("a_lol", {**A_LOL, "baseline": "median"}, r"a_lol: baseline 'median': unknown"),
        ("a_lol_free", {"baseline": "notes"}, r"baseline 'notes': unknown; did you mean 'note'\?"),
        ("rl_plus", {**RL_PLUS, "behaviour": "known"}, r"rl_plus: behaviour 'known': unknown"),
        ("rl_plus", {**RL_PLUS, "power": -1.0}, r"rl_plus: power -1\.0 must be 0 or more"),
        ("rl_plus", {**RL_PLUS, "low": 1.2}, r"low 1\.2 must lie in \[0, 1\]"),
    ],
)
def test_options_that_cannot_be_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        value_and_slope(name, external(1.0, 0.0, logp=[-1.0, -1.0]), **options)
