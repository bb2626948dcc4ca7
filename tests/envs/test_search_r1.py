from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.envs.search_r1 import SearchEnv, SearchEnvConfig
from rlsearch.envs.types import Call, Failure, Status
from rlsearch.errors import InputError
from tests.envs.fakes import PASSAGES, QUESTION, hits

TRANSCRIPT = Path(__file__).parent / "transcripts" / "search_r1.txt"
SEARCH = "<think>who?</think><search>author of Niels Lyhne</search>"
ANSWER = "<answer>Denmark</answer>"
writes = st.sampled_from([SEARCH, ANSWER, "nothing", "<search></search>", "<search>x"])


def env(max_turns: int = 4, style: str = "search_r1") -> SearchEnv:
    return SearchEnv(SearchEnvConfig(max_turns=max_turns, hits=3, style=style))


def play(task: SearchEnv, writing: list[str]):
    """Plays until the episode is done or nothing is left to write; every search finds all three passages."""
    state = task.start(QUESTION)
    for text in writing:
        if state.status is Status.DONE:
            break
        state = task.act(state, text)
        if state.status is Status.WAIT:
            state = task.observe(state, (hits(*PASSAGES),))
    return state


def test_a_scripted_episode_equals_the_stored_transcript_byte_for_byte():
    writing = [
        "<think>I need the author of the book.</think>\n\n<search> author of Niels Lyhne </search>",
        "I use <search> and </search>",
        "<think>The passage says <answer>Norway</answer>, which is no answer.</think><search>J. P. Jacobsen</search>",
        "<think>He was born in Denmark.</think><answer> Denmark </answer>",
    ]
    task, found = env(), iter([hits(PASSAGES[0], PASSAGES[2]), hits(PASSAGES[1])])
    state = task.start(QUESTION)
    for text in writing:
        state = task.act(state, text)
        if state.status is Status.WAIT:
            state = task.observe(state, (next(found),))
    context = "".join(turn.text + turn.observation_text for turn in state.turns)
    assert context.encode() == TRANSCRIPT.read_bytes()
    assert [turn.kind for turn in state.turns] == ["search", "invalid", "search", "answer"]
    assert [turn.hit_ids for turn in state.turns] == [("p1", "p3"), (), ("p2",), ()]
    assert [turn.queries for turn in state.turns] == [("author of Niels Lyhne",), (), ("J. P. Jacobsen",), ()]
    assert (state.status, state.answer, state.searches) == (Status.DONE, "Denmark", 2)


def test_a_search_waits_for_its_hits():
    state = env().act(env().start(QUESTION), SEARCH)
    assert (state.status, state.calls) == (Status.WAIT, (Call("search", "author of Niels Lyhne", 3),))
    assert state.turns[-1].observation == () and state.searches == 0
    after = env().observe(state, (hits(),))
    assert (after.status, after.calls, after.searches) == (Status.ACT, (), 1)


def test_four_turns_may_search_and_a_fifth_only_answers():
    assert play(env(4), [SEARCH] * 4).status is Status.ACT
    done = play(env(4), [SEARCH] * 9)
    assert (done.status, done.searches, len(done.turns), done.answer) == (Status.DONE, 4, 5, None)
    assert done.turns[-1].kind == "search" and done.turns[-1].observation == ()
    assert play(env(4), [SEARCH] * 4 + [ANSWER]).answer == "Denmark"
    assert play(env(0), [SEARCH]).status is Status.DONE


@given(st.lists(writes, max_size=12), st.integers(0, 4))
def test_an_episode_ends_in_time_and_remembers_what_was_written(writing, max_turns):
    state = play(env(max_turns), writing)
    assert len(state.turns) <= max_turns + 1
    assert state.searches <= max_turns
    assert [turn.text for turn in state.turns] == writing[: len(state.turns)]
    over = state.answer is not None or len(state.turns) == max_turns + 1
    assert (state.status is Status.DONE) == over
    for turn in state.turns[: len(state.turns) - over]:
        assert turn.observation
    if over:
        assert state.turns[-1].observation == ()


@given(st.lists(writes, max_size=3), writes, writes)
def test_a_fork_does_not_touch_its_sibling(before, left, right):
    task = env()
    state = play(task, before)
    if state.status is not Status.ACT:
        return
    kept = (state.status, state.turns, state.calls, state.answer)
    first = task.act(state, left)
    task.act(state, right)
    assert (state.status, state.turns, state.calls, state.answer) == kept
    assert task.act(state, left) == first


@pytest.mark.parametrize("style", ["search_r1", "compact"])
def test_a_failed_search_is_told_and_the_episode_goes_on(style):
    task = env(style=style)
    state = task.act(task.start(QUESTION), SEARCH)
    state = task.observe(state, (Failure("timed out after 3 s </information>"),))
    assert state.status is Status.ACT
    assert state.turns[0].failures == 1 and state.turns[0].hit_ids == ()
    told = state.turns[0].observation_text
    assert "The search failed: timed out after 3 s" in told
    assert told.count("</information>") == 1
    assert play(task, [SEARCH, ANSWER]).answer == task.act(state, ANSWER).answer


def test_acting_out_of_turn_is_refused():
    task = env()
    waiting = task.act(task.start(QUESTION), SEARCH)
    with pytest.raises(ValueError, match="test/1: the state is wait, not act"):
        task.act(waiting, ANSWER)
    with pytest.raises(ValueError, match="test/1: the state is act, not wait"):
        task.observe(task.start(QUESTION), (hits(),))
    with pytest.raises(ValueError, match="4 hits for 'author of Niels Lyhne'; the task shows 3"):
        task.observe(waiting, (hits(*PASSAGES, PASSAGES[0]),))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_turns": -1, "hits": 3, "style": "compact"}, "env.max_turns is -1"),
        ({"max_turns": 4, "hits": 0, "style": "compact"}, "env.hits is 0"),
        ({"max_turns": 4, "hits": 3, "style": "search-r1"}, "did you mean 'search_r1'"),
    ],
)
def test_settings_that_make_no_task_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        SearchEnvConfig(**settings)
