"""The automaton against string search, on random vocabularies and random text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.sampling.automaton import Automaton, build
from rlsearch.tokenization.tags import TAGS

TEXT = st.text("ab<>/", min_size=1, max_size=4)
PIECES = st.lists(st.binary(max_size=4) | TEXT.map(str.encode), min_size=1, max_size=12)


def walk(automaton: Automaton, ids) -> list[int]:
    """The state before the first token and after each one."""
    states = [0]
    for token in ids:
        states.append(int(automaton.table[states[-1], token]))
    return states


def end_of_first(data: bytes, stops) -> int | None:
    """Bytes up to the end of the stop string that is completed first."""
    ends = [data.find(stop.encode()) + len(stop.encode()) for stop in stops if stop.encode() in data]
    return min(ends, default=None)


@given(stops=st.lists(TEXT, min_size=1, max_size=4), pieces=PIECES, data=st.data())
def test_it_stops_where_string_search_does_and_knows_what_lies_beyond(stops, pieces, data):
    automaton = build(stops, pieces)
    ids = data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=12))
    states = walk(automaton, ids)
    for n, token in enumerate(ids):
        read = b"".join(pieces[i] for i in ids[: n + 1])
        end = end_of_first(read, stops)
        assert (states[n + 1] == automaton.accept) == (end is not None)
        completed = end is not None and states[n] != automaton.accept
        assert automaton.beyond[states[n], token] == (len(read) - end if completed else 0)


@given(tag=st.sampled_from(TAGS), before=st.text("<se/arch> ", max_size=6), data=st.data())
def test_a_tag_is_found_however_it_is_split(tag, before, data):
    whole = before.encode() + tag.encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    states = walk(build([tag], pieces), range(len(pieces)))
    assert states[-1] == build([tag], pieces).accept
    assert build([tag], pieces).accept not in states[:-1]


def test_a_token_without_bytes_leaves_the_state():
    automaton = build(["</a>"], [b"", b"</", b"a>"])
    assert (automaton.table[:, 0] == np.arange(len(automaton.table))).all()


def test_the_end_is_never_left():
    automaton = build(["ab", "b"], [b"a", b"b", b"abab"])
    assert (automaton.table[automaton.accept] == automaton.accept).all()
    assert not automaton.beyond[automaton.accept].any()


@pytest.mark.parametrize("stops", [[], ["a", ""]])
def test_an_empty_stop_string_is_refused(stops):
    with pytest.raises(ValueError, match="must not be empty"):
        build(stops, [b"a"])
