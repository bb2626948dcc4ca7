"""Routes worked by hand: what is reached by an outcome, and what is left out."""

from __future__ import annotations

from math import nan, sqrt

import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.credit.algebra import Episodes
from rlsearch.credit.route import channels as channels_estimator
from rlsearch.errors import InputError
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind
from tests.credit.hand import Chain, advantages, chains, credit, weights


def on(name: str, *values: float) -> list[dict[str, float]]:
    """A note at each of the turns."""
    return [{name: value} for value in values]


VPPO = {"prefix_reward": 0.5, "pass_mark": 1.0, "margin": 0, "keep_prefix": False}


def test_verified_prefix_by_hand():
    """VPPO with alpha 1/2: a right rollout, and a wrong one of 3 + 1 + 4 tokens with its fault at the second turn.

    Means over tokens: 1 and (3 x 1/2) / 8 = 3/16; their mean 19/32. So 13/32, and -3/32, -19/32, -19/32. With ReLU the
    prefix has 0. The second fault changes nothing.
    """
    nodes = chains(Chain(0, 1.0, on("fault", 1, 0)), Chain(0, 0.0, on("fault", 0, 1, 1), [3, 1, 4]))
    assert advantages(nodes, "first_error", **VPPO) == [[13 / 32] * 2, [-3 / 32, -19 / 32, -19 / 32]]
    found = advantages(nodes, "first_error", **{**VPPO, "keep_prefix": True})
    assert found == [[13 / 32] * 2, [0, -19 / 32, -19 / 32]]


def test_the_margin_shortens_the_prefix():
    """The fault is at the third turn of one token each: with margin 1 the first alone earns 1/2, mean (1/2) / 3."""
    nodes = chains(Chain(0, 0.0, on("fault", 0, 0, 1)))
    found = advantages(nodes, "first_error", **{**VPPO, "margin": 1})
    assert found[0] == pytest.approx([1 / 2 - 1 / 6, -1 / 6, -1 / 6])
    whole = advantages(nodes, "first_error", **{**VPPO, "margin": 3})
    assert whole == [[0, 0, 0]]


def test_a_tool_that_fails_begins_the_suffix():
    """The observation behind the second turn has the fault: both turns before it are prefix. Mean (1/2 + 1/2) / 3."""
    nodes = chains(Chain(0, 0.0, [{}, {}, {}], observed={"fault": 0.0}))
    fault = np.zeros(len(nodes.end), np.float32)
    fault[4] = 1  # prompt, turn, observation, turn, observation, turn
    nodes.notes["fault"] = fault
    assert advantages(nodes, "first_error", **VPPO)[0] == pytest.approx([1 / 6, 1 / 6, -1 / 3])


def test_without_a_located_error_nothing_is_verified():
    """Rewards 1 and 0 and no fault: GRPO without a deviation. All wrong alike: nothing at all, and nothing kept.

    Three tokens at .9 are .9 on average, not .9 and a rounding.
    """
    nodes = chains(Chain(0, 1.0, on("fault", 0)), Chain(0, 0.0, on("fault", 0)))
    assert advantages(nodes, "first_error", **VPPO) == [[0.5], [-0.5]]
    for reward, tokens in ((0.9, [3]), (0.2, [1, 2]), (1 / 3, [3])):
        alone = chains(
            Chain(0, reward, on("fault", *[0] * len(tokens)), tokens), Chain(0, reward, on("fault", 0, 0), [7, 6])
        )  # fmt: skip
        found = credit(alone, "first_error", drop_equal=True, **VPPO)
        assert not found.advantage.node.any()
        assert not found.kept.any()


def test_an_unscored_and_an_empty_rollout_have_no_prefix():
    """NaN has no vote. The rollout without tokens counts with its reward: mean of 0 and 1."""
    nodes = chains(Chain(0, 0.0, on("fault", 0)), Chain(0, nan, on("fault", 0, 1)), Chain(0, 1.0, on("fault", 1), [0]))
    found = advantages(nodes, "first_error", **VPPO)
    assert found == [[-0.5], [0, 0], [0]]


def test_two_contexts_share_one_mean():
    """One wrong episode in two trees, its fault in the second: the first context has no located error.

    Tokens 2 at 0, then 1 at 1/2 and 1 at 0: mean 1/8. Against 1 of the other the baseline is 9/16. One vote each.
    """
    first = Chain(0, 0.0, on("fault", 0), [2]).branch(5)
    second = Chain(0, 0.0, on("fault", 0, 1)).branch(5)
    right = Chain(0, 1.0, on("fault", 0)).branch(6)
    nodes = build([(0, first), (0, second), (0, right)], terms=1).nodes
    assert advantages(nodes, "first_error", **VPPO) == [[-9 / 16], [-1 / 16, -9 / 16], [7 / 16]]


def test_a_shared_turn_is_prefix_on_the_wrong_path_alone():
    """A tree: one turn, then a right answer and a wrong one whose first fault is itself; one token each.

    Means 1 and (1/2) / 2 = 1/4, baseline 5/8: the turn has 3/8 for the right path and -1/8 for the wrong one.
    """
    answers = [
        Branch(Kind.ANSWER, 1, [1], [-1.0], episode=i, rewards=[1.0 - i], notes={"fault": float(i)}) for i in (0, 1)
    ]
    query = Branch(Kind.QUERY, 0, [1], [-1.0], answers)
    nodes = build([(0, Branch(Kind.PROMPT, 0, [0], children=[query]))], terms=1).nodes
    found = credit(nodes, "first_error", **VPPO).advantage.node
    assert found[1, :2].tolist() == [3 / 8, -1 / 8]
    assert found[[2, 3], 0].tolist() == [3 / 8, -5 / 8]


def test_disjoint_channels_by_hand():
    """Outcome 1, 0 (weight 1) and skill 0, 10 (weight 1/2): +-1 and -+1/2, whatever their scale. Turn 1 has none."""
    marks = on("channel", 1, -1, 0)
    nodes = chains(Chain(0, [1.0, 0.0], marks), Chain(0, [0.0, 10.0], marks))
    options = {"weights": (1.0, 0.5), "scale": True}
    assert advantages(nodes, "channels", **options) == [[-0.5, 0, 1], [0.5, 0, -1]]
    assert weights(nodes, "channels", **options) == [[1 / 4, 0, 1 / 4]] * 2
    plain = advantages(nodes, "channels", weights=(1.0, 0.5), scale=False)
    assert plain == [[-2.5, 0, 0.5], [2.5, 0, -0.5]]


def test_a_channel_that_is_constant_has_exactly_nothing():
    """B053: one channel's advantage never reaches another. Terms of .6 are equal, and the outcome goes on.

    The second question has no turn in the channel that varies, and so no signal.
    """
    marks, constant = on("channel", 1, 0), on("channel", 1)
    nodes = chains(
        Chain(0, [1.0, 0.6], marks), Chain(0, [0.0, 0.6], marks),
        Chain(1, [1.0, 0.6], constant), Chain(1, [0.0, 0.6], constant),
    )  # fmt: skip
    found = advantages(nodes, "channels", weights=(1.0, 0.5), scale=True)
    assert found == [[0, 1], [0, -1], [0], [0]]
    kept = credit(nodes, "channels", weights=(1.0, 0.5), scale=True, drop_equal=True).kept
    assert kept.sum() == 2


def test_channels_refuse_a_penalty():
    """B080."""
    nodes = chains(Chain(0, [1.0], on("channel", 0)))
    with pytest.raises(InputError, match=r"channels.*use KL in the loss"):
        channels_estimator(Episodes(nodes, (1.0,), None, jnp.zeros(2)), scale=True)


def test_answers_are_masked():
    """OM-GRPO: +-1 at the reasoning of one and two tokens; answers of three are in no denominator either (B075)."""
    marks = on("channel", 0, 1)
    nodes = chains(Chain(0, 1.0, marks, [1, 3]), Chain(0, 0.0, marks, [2, 3]))
    assert advantages(nodes, "answer_masked", scale=True) == [[1, 0], [-1, 0]]
    assert weights(nodes, "answer_masked", scale=True) == [[pytest.approx(1 / 3), 0]] * 2


def test_an_episode_that_is_all_answer_has_no_token():
    nodes = chains(Chain(0, 1.0, on("channel", 1)), Chain(0, 0.0, on("channel", 1)))
    found = credit(nodes, "answer_masked", scale=True, drop_equal=True)
    assert not found.weight.any()
    assert not found.advantage.node.any()


FOLD = {"summary_weight": 0.25, "action_weight": 0.75, "scale": True}


def test_summaries_and_actions_by_hand():
    """FoldAct: 2 summary and 6 action tokens, rewards 1 and 0. Plain weights: 1/4 and 3/4.

    Apart: 1/4 x 8/2 = 1 and 3/4 x 8/6 = 1. The loss with ratio 1 is then 1/4 the mean over summary tokens, (1 - 1) / 2,
    plus 3/4 the mean over action tokens, (2 - 4) / 6: -1/4, as sum of weight x advantage.
    """
    nodes = chains(Chain(0, 1.0, on("channel", 1, 0), [1, 2]), Chain(0, 0.0, on("channel", 1, 2), [1, 4]))
    assert advantages(nodes, "summary_action", apart=False, **FOLD) == [[0.25, 0.75], [-0.25, -0.75]]
    assert advantages(nodes, "summary_action", apart=True, **FOLD) == [[1, 1], [-1, -1]]
    found = credit(nodes, "summary_action", apart=True, **FOLD)
    tokens = np.zeros(64)
    tokens[: len(nodes.end)] = nodes.tokens
    assert (found.weight * found.advantage.node).sum(axis=1) @ tokens == pytest.approx(-1 / 4)


def test_episodes_without_a_signal_do_not_balance_the_kinds():
    """A constant question of ten summary tokens changes nothing: 2 and 6 tokens are counted as before."""
    nodes = chains(
        Chain(0, 1.0, on("channel", 1, 0), [1, 2]), Chain(0, 0.0, on("channel", 1, 0), [1, 4]),
        Chain(1, 1.0, on("channel", 1), [10]), Chain(2, nan, on("channel", 1), [10]),
    )  # fmt: skip
    assert advantages(nodes, "summary_action", apart=True, **FOLD) == [[1, 1], [-1, -1], [0], [0]]
    alone = advantages(chains(Chain(0, 1.0, on("channel", 0))), "summary_action", apart=True, **FOLD)
    assert alone == [[0]]


ECHO = {"negative": 0.0, "keep_last": True, "scale": True}


def test_positive_credit_follows_the_evidence():
    """Rewards 1 and 0. The success credits its first turn, half its third and its last; the failure nothing."""
    nodes = chains(Chain(0, 1.0, on("support", 1, 0, 0.5, -3)), Chain(0, 0.0, on("support", 1, 1)))
    assert advantages(nodes, "evidence", **ECHO) == [[1, 0, 0.5, 1], [0, 0]]
    assert weights(nodes, "evidence", **ECHO) == [[pytest.approx(1 / 3), 0, pytest.approx(1 / 3), pytest.approx(1 / 3)],
                                                  [0, 0]]  # fmt: skip
    assert advantages(nodes, "evidence", **{**ECHO, "keep_last": False}) == [[1, 0, 0.5, 0], [0, 0]]


def test_failures_may_be_blamed_densely():
    nodes = chains(Chain(0, 1.0, on("support", 2, 0)), Chain(0, 0.0, on("support", 0, 0)))
    found = advantages(nodes, "evidence", **{**ECHO, "negative": 0.25})
    assert found == [[1, 1], [-0.25, -0.25]]  # support is clipped to 1


def test_the_mean_of_the_group_is_no_success():
    """.3, .45, .6: in float32 the second is below the mean by a rounding, for which it is not blamed."""
    nodes = chains(*[Chain(0, r, on("support", 1)) for r in (0.3, 0.45, 0.6)])
    assert weights(nodes, "evidence", **{**ECHO, "negative": 1.0}) == [[0.5], [0], [0.5]]
    assert advantages(nodes, "evidence", **ECHO)[1] == [0]
    assert weights(nodes, "evidence", **ECHO) == [[0], [0], [1]]


def test_fatal_turns_by_hand():
    """Rewards 1, 0, 1, 0: +-1. The last two are lost at their second turn: one keeps 1, the other has max(-1, 0).

    One token a turn: 2 + 2 + 1 + 1 take part.
    """
    whole, lost = on("fatal", 0, 0), on("fatal", 0, 1, 0)
    nodes = chains(Chain(0, 1.0, whole), Chain(0, 0.0, whole), Chain(0, 1.0, lost), Chain(0, 0.0, lost))
    assert advantages(nodes, "fatal_aware", scale=True) == [[1, 1], [-1, -1], [1, 0, 0], [0, 0, 0]]
    sixth = pytest.approx(1 / 6)
    assert weights(nodes, "fatal_aware", scale=True) == [[sixth] * 2, [sixth] * 2, [sixth, 0, 0], [sixth, 0, 0]]


def test_a_fatal_first_turn_leaves_a_vote_and_no_token():
    """Rewards 1, 0, 0 of which the last is lost at once: mean 1/3, deviation sqrt(2)/3."""
    marks = [on("fatal", mark) for mark in (0, 0, 1)]
    nodes = chains(*[Chain(0, r, mark) for r, mark in zip((1.0, 0.0, 0.0), marks, strict=True)])
    found = advantages(nodes, "fatal_aware", scale=True)
    assert [row[0] for row in found] == pytest.approx([sqrt(2), -sqrt(0.5), 0])
    assert weights(nodes, "fatal_aware", scale=True) == [[0.5], [0.5], [0]]
