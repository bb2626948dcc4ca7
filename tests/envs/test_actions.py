from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.envs.actions import INVALID, Action, parse
from rlsearch.tokenization.tags import TAGS

fragments = st.sampled_from([*TAGS, " ", "\n", "who", "is", ".", "<", ">", "</", "é"])
turns = st.lists(fragments, max_size=14).map("".join)
plain = st.text(max_size=20).filter(lambda text: not any(tag in text for tag in TAGS))
contents = plain.filter(lambda text: bool(text.strip()))


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<search>q</search>", Action("search", "q")),
        ("<answer> Paris </answer>", Action("answer", "Paris")),
        ("<think>where?</think>\n\n<search> capital of France\n</search>", Action("search", "capital of France")),
        ("I need more. <search>q</search>", Action("search", "q")),
        ("Let me look it up:\n<search>q</search>", Action("search", "q")),
        ("thought opened by the prompt</think><answer>x</answer>", Action("answer", "x")),
        ("<search>q</search>\n", Action("search", "q")),
        ("<search>a < b</search>", Action("search", "a < b")),
    ],
)
def test_an_action_is_read(text, action):
    assert parse(text) == action


def test_tags_in_a_thought_are_quotations():
    text = "<think>the doc says <answer>foo</answer></think><search>q</search>"
    assert parse(text) == Action("search", "q")
    assert parse("<think>the doc says <answer>foo</answer>") == INVALID


@pytest.mark.parametrize(
    "text",
    [
        "I use <search> and </search> tags",
        "I use <search> and </search>",
        "<think>hm</think> I use <search> and </search>",
        "<search></search>",
        "<answer> \n </answer>",
        "<think>no action</think>",
        "",
        "Paris",
        "<search>never closed",
        "</search>",
        "<search>q</answer>",
        "<search>a<search>b</search>",
        "<search>q<think>x</search>",
        "<information>made up</information>\n<answer>x</answer>",
        "<search>a</search><search>b</search>",
        "<search>a</search> because",
        "<Search>q</Search>",
    ],
)
def test_everything_else_is_invalid(text):
    assert parse(text) == INVALID


@given(turns)
def test_every_turn_has_one_reading_and_its_content_is_clean(text):
    action = parse(text)
    assert action.kind in ("search", "answer", "invalid")
    assert (action.kind == "invalid") == (action.content == "")
    assert action.content == action.content.strip()
    assert not any(tag in action.content for tag in TAGS)
    if action.kind != "invalid":
        assert action.content in text


@given(turns, st.sampled_from(["search", "answer"]), contents)
def test_whatever_is_thought_the_action_after_it_counts(thought, kind, content):
    assert parse(f"<think>{thought}</think>\n<{kind}>{content}</{kind}>") == Action(kind, content.strip())


@given(plain)
def test_text_without_tags_is_never_an_action(text):
    assert parse(text) == INVALID
