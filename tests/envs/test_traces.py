"""Demonstrations: valid episodes about true facts, as noisy as they say and no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.envs.actions import parse
from rlsearch.envs.traces import Trace, TracesConfig, draw_trace
from rlsearch.envs.worlds import World, make_world
from rlsearch.errors import InputError
from tests.envs.test_worlds import SMALL

NOISY = TracesConfig(searches=(0.45, 0.3, 0.2, 0.05), wrong_relation=0.15)
WORLD = make_world(SMALL, seed=0, index=0, split="train")


def asked(trace: Trace) -> list[list[str]]:
    """Relation and entity of each search."""
    return [parse(text).content.split() for text, hits in trace.turns if hits is not None]


def wanted(trace: Trace) -> list[str]:
    """The relations that the question asks for, in the order of searching."""
    return trace.question.text.removeprefix("What is the ").rsplit(" of ", 1)[0].split(" of the ")[::-1]


def traces(config: TracesConfig, count: int, world: World = WORLD) -> list[Trace]:
    rng = np.random.default_rng(0)
    return [draw_trace(config, world, rng, hops=1 + i % 3) for i in range(count)]


@given(seed=st.integers(0, 2**31 - 1), hops=st.integers(1, 3))
def test_a_trace_searches_along_what_it_finds_and_answers_with_the_last(seed, hops):
    trace = draw_trace(NOISY, WORLD, np.random.default_rng(seed), hops=hops)
    here = trace.question.text.removesuffix("?").rsplit(" of ", 1)[1]
    for (relation, entity), (_, hits) in zip(asked(trace), trace.turns, strict=False):
        assert entity == here
        assert hits.passages == (WORLD.passages[WORLD.passage_of[here, relation]],)
        here = WORLD.facts[here][relation]
    assert 1 <= len(trace.turns) - 1 <= 4
    assert [hits is None for _, hits in trace.turns] == [False] * (len(trace.turns) - 1) + [True]
    assert parse(trace.turns[-1][0]).content == here
    assert trace.question.hops == hops


def test_how_often_a_trace_searches_does_not_depend_on_its_hops():
    drawn = traces(NOISY, 3000)
    for hops in (1, 2, 3):
        counts = np.bincount([len(asked(t)) for t in drawn if t.question.hops == hops], minlength=5)[1:] / 1000
        np.testing.assert_allclose(counts, NOISY.searches, atol=0.05)


@pytest.mark.parametrize("rate", [0.0, 0.15, 0.6])
def test_the_first_search_is_wrong_as_often_as_it_says(rate):
    drawn = traces(TracesConfig(searches=(0.5, 0.5), wrong_relation=rate), 1500)
    wrong = np.mean([asked(trace)[0][0] != wanted(trace)[0] for trace in drawn])
    assert abs(wrong - rate) < 0.04


def test_without_noise_a_trace_that_searches_enough_is_right():
    drawn = traces(TracesConfig(searches=(0.0, 0.0, 1.0), wrong_relation=0.0), 60)
    for trace in drawn:
        assert [relation for relation, _ in asked(trace)][: trace.question.hops] == wanted(trace)
        right = parse(trace.turns[-1][0]).content == trace.question.answers[0]
        assert right or trace.question.hops < 3


def test_probabilities_must_sum_to_one():
    with pytest.raises(InputError, match=r"sums to 0\.75; probabilities must sum to 1"):
        TracesConfig(searches=(0.5, 0.25), wrong_relation=0.1)
