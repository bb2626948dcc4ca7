from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.envs.actions import parse
from rlsearch.envs.types import Question, State, Status, Turn
from rlsearch.rewards.format import malformed_tags, search_r1_format, well_formed, well_formed_turn
from rlsearch.tokenization.tags import TAGS

QUESTION = Question(id="t/1", text="?", answers=("x",), supporting_ids=(), hops=0, corpus="t")
THOUGHT = "<think>hm</think>"


def episode(*texts: str) -> State:
    actions = [parse(text) for text in texts]
    turns = tuple(Turn(text, action.kind) for text, action in zip(texts, actions, strict=True))
    answer = actions[-1].content if actions and actions[-1].kind == "answer" else None
    return State(question=QUESTION, status=Status.DONE, turns=turns, answer=answer)


@pytest.mark.parametrize(
    ("text", "think", "good"),
    [
        (f"{THOUGHT}\n<search>q</search>\n", True, True),
        ("<search> q </search>", False, True),
        ("<search> q </search>", True, False),
        (f"{THOUGHT}<answer>x</answer>", False, False),
        (f"{THOUGHT}so <answer>x</answer>", True, False),
        ("<think> </think><answer>x</answer>", True, False),
        ("<think>a <search> b</think><answer>x</answer>", True, False),
        ("<think><think>a</think><answer>x</answer>", True, False),
        ("<answer></answer>", False, False),
        ("<answer>x</search>", False, False),
        ("<search>a</search><search>b</search>", False, False),
        ("", False, False),
    ],
)
def test_a_well_formed_turn(text, think, good):
    assert well_formed_turn(text, think=think) is good


@given(st.lists(st.sampled_from([*TAGS, "x", " ", "\n"]), max_size=8).map("".join), st.booleans())
def test_a_well_formed_turn_is_a_valid_action_with_sound_tags(text, think):
    if well_formed_turn(text, think=think):
        assert parse(text).kind != "invalid"
        assert malformed_tags(text) == 0


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (f"{THOUGHT}<search>q</search>", 0),
        ("<think>hm", 1),
        ("</think>", 1),
        ("<search>q</answer>", 2),
        ("<search>a<search>b</search>", 1),
        ("plain", 0),
    ],
)
def test_malformed_tags_are_counted(text, faults):
    assert malformed_tags(text) == faults


def test_every_turn_counts_and_the_last_has_to_answer():
    assert well_formed(episode("<search>q</search>", "<answer>x</answer>"), think=False)
    assert not well_formed(episode("so: <search>q</search>", "<answer>x</answer>"), think=False)
    assert not well_formed(episode("<search>q</search>"), think=False)


@pytest.mark.parametrize(
    ("texts", "correct", "value"),
    [
        ([f"{THOUGHT}<search>q</search>", f"{THOUGHT}<answer>x</answer>"], True, 1.0),
        (["<search>q</search>", f"{THOUGHT}<answer>x</answer>"], True, 0.8),
        ([f"{THOUGHT}<answer>x</answer>"], False, 0.2),
        (["<answer>x</answer>"], False, 0.1),
        ([f"{THOUGHT}<search>q</search>"], False, 0.0),
    ],
)
def test_search_r1s_graded_outcome(texts, correct, value):
    assert search_r1_format(episode(*texts), correct=correct, think=True) == value
