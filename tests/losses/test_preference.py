"""DPO and PACS, worked by hand."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from rlsearch.errors import InputError
from tests.losses.hand import DROPPED, end, made, node, value_and_slope

DPO = {"beta": 0.5, "pairs": "all"}
PACS = {"beta": 1.0, "above": 0.5, "balance": False}


def lost(x: float) -> float:
    """-log sigmoid(x)."""
    return log(1 + exp(-x))


def answers(*rewards: float, question: int = 0):
    """An episode of one token for each reward."""
    return [end(1, reward, 10 * question + index) for index, reward in enumerate(rewards)]


def moved(*by: float) -> dict:
    """Every token is at -1 now, and was less likely by ``by`` under the other policy."""
    return {"logp": [-1.0] * len(by), "reference": [-1.0 - x for x in by], "old": [-1.0 - x for x in by]}


def test_dpo_of_a_pair():
    """arXiv 2305.18290, equation 7: d = 0.6 and -0.2, margin 0.5 x 0.8; gradient -beta sigmoid(-margin) and back."""
    value, slope = value_and_slope("dpo", made(answers(1.0, 0.0), **moved(0.6, -0.2)), **DPO)
    assert value == pytest.approx(lost(0.4), rel=1e-5)
    pull = 0.5 / (1 + exp(0.4))
    np.testing.assert_allclose(slope, [-pull, pull], rtol=1e-5)


def test_dpo_sums_over_an_episode_and_what_two_share_cancels():
    """d = 0.1 - 0.3 + 0.6 and 0.1 - 0.3 - 0.2 - 0.4: the shared search has no part in the margin of 1.2."""
    given = made([node(2, end(1, 1.0, 0), end(2, 0.0, 1))], **moved(0.1, -0.3, 0.6, -0.2, -0.4))
    value, slope = value_and_slope("dpo", given, **DPO)
    assert value == pytest.approx(lost(0.5 * 1.2), rel=1e-5)
    pull = 0.5 / (1 + exp(0.6))
    np.testing.assert_allclose(slope, [0, 0, -pull, pull, pull], rtol=1e-5, atol=1e-7)


THREE = (0.6, 0.0, -0.2)  # d of episodes of outcome 1, 0.5 and 0


@pytest.mark.parametrize(
    ("pairs", "value"),
    [("all", (lost(0.5 * 0.6) + lost(0.5 * 0.8) + lost(0.5 * 0.2)) / 3), ("extremes", lost(0.5 * 0.8))],
)
def test_dpo_of_all_pairs_or_of_the_extremes(pairs, value):
    given = made(answers(1.0, 0.5, 0.0), **moved(*THREE))
    assert value_and_slope("dpo", given, **{**DPO, "pairs": pairs})[0] == pytest.approx(value, rel=1e-5)


def test_no_order_decides_between_episodes_that_are_equally_good():
    """Best are d = 0.6 and 0.2, worst 0.0: both pairs count half, and the one between them is left out."""
    value = (lost(0.5 * 0.6) + lost(0.5 * 0.2)) / 2
    given = made(answers(1.0, 1.0, 0.0, 0.5), **moved(0.6, 0.2, 0.0, 3.0))
    assert value_and_slope("dpo", given, **{**DPO, "pairs": "extremes"})[0] == pytest.approx(value, rel=1e-5)


def test_every_question_with_a_pair_weighs_the_same():
    """One has three pairs, one has one, one has none: the mean is over two."""
    first = (lost(0.5 * 0.6) + lost(0.5 * 0.8) + lost(0.5 * 0.2)) / 3
    questions = [answers(1.0, 0.5, 0.0), answers(0.0, 1.0, question=1), answers(1.0, 1.0, question=2)]
    given = made(*questions, **moved(*THREE, 0.3, 0.1, 9.0, -9.0))
    value, slope = value_and_slope("dpo", given, **DPO)
    assert value == pytest.approx((first + lost(0.5 * -0.2)) / 2, rel=1e-5)
    assert slope[-2:] == [0.0, 0.0]


def test_an_episode_of_two_contexts_is_one_side_of_a_pair():
    """d = 0.6 - 0.1 over both contexts, against 0.2."""
    contexts = [end(1, 1.0, 0), end(1, 1.0, 0), end(1, 0.0, 1)]
    value, _ = value_and_slope("dpo", made(contexts, **moved(0.6, -0.1, 0.2)), **DPO)
    assert value == pytest.approx(lost(0.5 * 0.3), rel=1e-5)


def test_pacs_of_two():
    """arXiv 2509.02522: r = 0.2 and -0.4, psi = 0.6 and -0.6, and so both cross-entropies are log(1 + exp(-0.6))."""
    value, slope = value_and_slope("pacs", made(answers(1.0, 0.0), **moved(0.2, -0.4)), **PACS)
    assert value == pytest.approx(lost(0.6), rel=1e-5)
    # Each psi has both r in it: (1 / 2) x (2 x -sigmoid(-0.6)).
    pull = 1 / (1 + exp(0.6))
    np.testing.assert_allclose(slope, [-pull, pull], rtol=1e-5)


def test_pacs_of_three_with_the_others_as_baseline():
    """r = beta (0.3, 0, -0.6) with beta 2 = (0.6, 0, -1.2); psi = 0.6 + 0.6, 0 + 0.3, -1.2 - 0.3; labels 1, 0, 0.

    The gradient by r_1 is (1 / 3) ((sigmoid(1.2) - 1) - sigmoid(0.3) / 2 - sigmoid(-1.5) / 2), by log pi twice that.
    """
    given = made(answers(1.0, 0.0, 0.0), **moved(0.3, 0.0, -0.6))
    value, slope = value_and_slope("pacs", given, **{**PACS, "beta": 2.0})
    assert value == pytest.approx((lost(1.2) + lost(-0.3) + lost(1.5)) / 3, rel=1e-5)
    sigmoid = {x: 1 / (1 + exp(-x)) for x in (1.2, 0.3, -1.5)}
    pull = 2 / 3 * (sigmoid[1.2] - 1 - sigmoid[0.3] / 2 - sigmoid[-1.5] / 2)
    assert slope[0] == pytest.approx(pull, rel=1e-5)
    assert sum(slope) == pytest.approx(0, abs=1e-6)


def test_pacs_before_the_policy_moves_is_the_policy_gradient():
    """psi = 0 everywhere: the loss is log 2 and its gradient that of -(A_1 log pi_1 + ...) / n with A = y less the mean
    of the others' y, up to a factor: by r_i it is -(y_i - mean of others) / (2 n).
    """
    given = made(answers(1.0, 0.0, 0.0, 1.0), **moved(0.0, 0.0, 0.0, 0.0))
    value, slope = value_and_slope("pacs", given, **PACS)
    assert value == pytest.approx(log(2), rel=1e-6)
    advantage = np.array([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    np.testing.assert_allclose(slope, -advantage / 4, rtol=1e-5)


def test_pacs_balanced():
    """One of three is right: it weighs 3 / 2 and the others 3 / 4. Questions where all agree weigh 1."""
    given = made(answers(1.0, 0.0, 0.0), answers(1.0, 1.0, question=1), **moved(0.3, 0.0, -0.6, 0.4, 0.0))
    value, _ = value_and_slope("pacs", given, **{**PACS, "balance": True})
    first = 1.5 * lost(0.6) + 0.75 * lost(-0.15) + 0.75 * lost(0.75)
    assert value == pytest.approx((first + lost(0.4) + lost(-0.4)) / 5, rel=1e-5)


def test_a_group_of_one_has_no_baseline():
    """It is in neither sum nor count."""
    alone = made(answers(1.0, 0.0), answers(1.0, question=1), **moved(0.2, -0.4, 5.0))
    value, slope = value_and_slope("pacs", alone, **PACS)
    assert value == pytest.approx(lost(0.6), rel=1e-5)
    assert slope[2] == 0.0


def test_an_episode_without_tokens_is_no_member():
    """Of three episodes one is silent: the baseline of the others is each other, as of two."""
    given = made([end(1, 1.0, 0), end(0, 0.0, 1), end(1, 0.0, 2)], **moved(0.2, -0.4))
    assert value_and_slope("pacs", given, **PACS)[0] == pytest.approx(lost(0.6), rel=1e-5)
    assert value_and_slope("dpo", given, **DPO)[0] == pytest.approx(lost(0.5 * 0.6), rel=1e-5)


def test_an_episode_that_could_not_be_scored_is_no_member():
    given = made([end(1, 1.0, 0), end(1, float("nan"), 1), end(1, 0.0, 2)], **moved(0.2, 7.0, -0.4))
    for name, options, value in (("pacs", PACS, lost(0.6)), ("dpo", DPO, lost(0.3))):
        found, slope = value_and_slope(name, given, **options)
        assert found == pytest.approx(value, rel=1e-5)
        assert slope[1] == 0.0


@pytest.mark.parametrize("name", ["dpo", "pacs"])
@pytest.mark.parametrize("by", [60.0, -60.0])
def test_far_from_the_other_policy_nothing_overflows(name, by):
    """A margin of 60: the loss is 0, or the margin; the gradient 0, or at its largest."""
    options = {"dpo": {**DPO, "beta": 1.0}, "pacs": PACS}[name]
    value, slope = value_and_slope(name, made(answers(1.0, 0.0), **moved(by, 0.0)), **options)
    assert value == pytest.approx(max(-by, 0.0), abs=1e-6)
    np.testing.assert_allclose(slope, [0.0, 0.0] if by > 0 else [-1.0, 1.0], atol=1e-6)


@pytest.mark.parametrize(("name", "options"), [("dpo", DPO), ("pacs", PACS)])
def test_questions_without_a_signal_that_are_dropped_are_nothing(name, options):
    given = made(answers(1.0, 1.0), **moved(0.2, -0.4), credit=DROPPED)
    assert value_and_slope(name, given, **options) == (0.0, [0.0, 0.0])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dpo", {**DPO, "pairs": "extreme"}, r"dpo: pairs 'extreme': unknown; did you mean 'extremes'\?"),
        ("dpo", {**DPO, "beta": 0.0}, r"dpo: beta 0\.0 must be above 0"),
        ("pacs", {**PACS, "beta": -1.0}, r"pacs: beta -1\.0 must be above 0"),
    ],
)
def test_options_that_cannot_be_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        value_and_slope(name, made(answers(1.0, 0.0), **moved(0.2, -0.4)), **options)
