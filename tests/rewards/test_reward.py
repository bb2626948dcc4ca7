from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.envs.search_r1 import SearchEnv, SearchEnvConfig
from rlsearch.envs.types import State, Status
from rlsearch.errors import InputError
from rlsearch.rewards.reward import NO_ANSWER, TERMS, Reward
from tests.envs.fakes import PASSAGES, QUESTION, hits

ENV = SearchEnv(SearchEnvConfig(max_turns=2, hits=3, style="compact"))


def play(*texts: str, found=(PASSAGES[0],)) -> State:
    state = ENV.start(QUESTION)
    for text in texts:
        state = ENV.act(state, text)
        if state.status is Status.WAIT:
            state = ENV.observe(state, (hits(*found),))
    return state


def test_columns_stand_apart_and_unweighted():
    reward = Reward((("exact_match", 1.0), ("format", 0.1), ("searches", -0.05), ("recall", 0.0)))
    score = reward.score(play("<search>a</search>", "nothing", "<answer>Denmark</answer>"))
    assert score.columns == {"exact_match": 1.0, "format": 0.0, "searches": 1.0, "recall": 0.5}
    assert list(score.columns) == list(reward.names) == ["exact_match", "format", "searches", "recall"]
    assert reward.weights == (1.0, 0.1, -0.05, 0.0)
    assert score.flags == ()
    assert reward.total(score) == pytest.approx(0.95)


def test_every_term_by_hand():
    reward = Reward(tuple((name, 1.0) for name in TERMS))
    state = play("<think>a</think><search>a</search>", "nothing", "<think>b</think><answer>in Denmark</answer>")
    assert reward.score(state).columns == {
        "exact_match": 0.0,
        "cover_match": 1.0,
        "f1": pytest.approx(2 / 3),
        "answered": 1.0,
        "valid": pytest.approx(2 / 3),
        "searches": 1.0,
        "format": 0.0,
        "format_think": 0.0,
        "search_r1_format": 0.1,
        "recall": 0.5,
    }


def test_an_episode_that_ends_in_a_search_earned_nothing_and_says_so():
    reward = Reward((("exact_match", 1.0), ("f1", 1.0), ("answered", 1.0), ("searches", 0.0)))
    state = play("<search>a</search>", "<search>b</search>", "<search>Denmark</search>")
    score = reward.score(state)
    assert score.columns == {"exact_match": 0.0, "f1": 0.0, "answered": 0.0, "searches": 2.0}
    assert score.flags == (NO_ANSWER,) == ("no final answer",)


def test_an_answer_in_a_passage_or_a_thought_is_not_the_answer():
    """The passage holds a pair of answer tags with another word; the last thought quotes the right one."""
    state = play("<search>a</search>", "<think><answer>Denmark</answer></think>", "none", found=(PASSAGES[2],))
    score = Reward((("exact_match", 1.0),)).score(state)
    assert (state.answer, score.columns, score.flags) == (None, {"exact_match": 0.0}, (NO_ANSWER,))


def test_what_cannot_be_scored_is_nan_and_flagged():
    unknown = replace(QUESTION, supporting_ids=(), answers=("A",))
    state = replace(play("<answer>anything</answer>"), question=unknown)
    reward = Reward((("exact_match", 1.0), ("recall", 1.0), ("cover_match", 0.0)))
    score = reward.score(state)
    assert score.columns["exact_match"] == 0.0
    assert math.isnan(score.columns["recall"]) and math.isnan(score.columns["cover_match"])
    assert score.flags == ("unscorable: recall", "unscorable: cover_match")
    assert math.isnan(reward.total(score))
    assert Reward((("exact_match", 1.0), ("recall", 0.0))).total(score) == 0.0


def test_an_episode_ended_before_its_first_turn_has_defined_columns():
    state = replace(ENV.start(QUESTION), status=Status.DONE)
    columns = Reward(tuple((name, 1.0) for name in TERMS)).score(state).columns
    assert math.isnan(columns.pop("valid"))
    assert set(columns.values()) == {0.0}


@given(
    st.lists(st.sampled_from(["<search>a</search>", "<answer>Denmark</answer>", "x", "<answer>A</answer>"]), max_size=3)
)
def test_every_finished_episode_scores_within_bounds(texts):
    state = ENV.start(QUESTION)
    for text in [*texts, "x", "x", "x"]:
        if state.status is Status.ACT:
            state = ENV.act(state, text)
        if state.status is Status.WAIT:
            state = ENV.observe(state, (hits(*PASSAGES),))
    score = Reward(tuple((name, 1.0) for name in TERMS)).score(state)
    assert all(0.0 <= value <= 1.0 for name, value in score.columns.items() if name != "searches")
    assert (NO_ANSWER in score.flags) == (score.columns["answered"] == 0.0)


def test_an_unfinished_episode_is_not_scored():
    with pytest.raises(ValueError, match="test/1: the episode is not done"):
        Reward((("f1", 1.0),)).score(play("<search>a</search>"))


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ((), "reward.terms is empty"),
        ((("exact_mach", 1.0),), "unknown term 'exact_mach'; did you mean 'exact_match'"),
        ((("f1", math.nan),), "weight of 'f1' is nan"),
        ((("f1", "1"),), "weight of 'f1' is '1'"),
        ((("f1", 1.0), ("f1", 2.0)), "listed twice"),
    ],
)
def test_a_reward_that_cannot_be_meant_is_refused(terms, message):
    with pytest.raises(InputError, match=message):
        Reward(terms)
