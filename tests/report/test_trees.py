"""Packed rollouts hold what was written: a slow unpacker finds every token again."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rlsearch.report import trees

NUMBER = st.none() | st.floats(-50, 50)
TOKEN = st.fixed_dictionaries(
    {"text": st.text(max_size=3), "sampled": st.booleans(), "logp": NUMBER, "advantage": NUMBER}
)
NODE = st.fixed_dictionaries(
    {
        "parent": st.just(-1),
        "kind": st.sampled_from(["prompt", "search", "answer"]),
        "text": st.just("whole"),
        "tokens": st.lists(TOKEN, min_size=1, max_size=12),
        "reward": NUMBER,
        "searches": st.integers(0, 9),
    }
)


def snapshot(nodes):
    return {"step": 7, "trees": [{"question": "Q", "answers": ["A"], "nodes": nodes}]}


def unpack(packed, strings):
    """The reading that ``assets/trees.js`` does, in Python."""
    count = len(packed["t"])
    sampled = [bool(run % 2) for run, length in enumerate(packed["m"]) for _ in range(length)]
    logp, advantage = [None] * count, []
    for start, *values in packed.get("l", []):
        logp[start : start + len(values)] = [value / 100 for value in values]
    runs = packed.get("a", [None, count])
    for value, length in zip(runs[::2], runs[1::2], strict=True):
        advantage += [value] * length
    return [strings[i] for i in packed["t"]], sampled, logp, advantage


def close(found, wanted, **tolerance):
    if wanted is None:
        return found is None
    return math.isclose(found, wanted, **tolerance)


@given(st.lists(NODE, min_size=1, max_size=4))
def test_every_token_is_found_again(nodes):
    packed = trees.pack([snapshot(nodes)])
    for node, small in zip(nodes, packed["steps"][0]["trees"][0]["n"], strict=True):
        texts, sampled, logps, advantages = unpack(small, packed["strings"])
        assert texts == [token["text"] for token in node["tokens"]]
        assert sampled == [token["sampled"] for token in node["tokens"]]
        for token, logp, advantage in zip(node["tokens"], logps, advantages, strict=True):
            assert close(logp, token["logp"], abs_tol=0.00501)
            assert close(advantage, token["advantage"], rel_tol=0.006)
        assert close(small.get("r"), node["reward"], rel_tol=0.006)


def test_the_scale_is_the_largest_advantage_and_ignores_what_is_not_finite():
    token = {"text": "a", "sampled": True, "logp": -0.1}
    values = (0.5, -2.0, None, math.nan, math.inf)
    node = {"parent": -1, "kind": "answer", "text": "a", "reward": math.nan, "searches": 0}
    node["tokens"] = [token | {"advantage": value} for value in values]
    packed = trees.pack([snapshot([node])])["steps"][0]
    assert packed["scale"] == 2.0
    assert "r" not in packed["trees"][0]["n"][0]


def test_a_node_without_tokens_keeps_its_text():
    node = {"parent": -1, "kind": "prompt", "text": "whole", "tokens": [], "reward": None, "searches": 0}
    assert trees.pack([snapshot([node])])["strings"] == ["whole"]


def test_advantage_on_observed_tokens_is_counted():
    tokens = [
        {"text": "a", "sampled": sampled, "logp": None, "advantage": advantage}
        for sampled, advantage in ((True, 1.0), (False, 0.0), (False, None), (False, -0.1))
    ]
    node = {"parent": -1, "kind": "other", "text": "aaaa", "tokens": tokens, "reward": None, "searches": 0}
    assert trees.leaking([snapshot([node])]) == 1
