"""Sums within nodes over the slots of a batch, against loops over each node's tokens."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsearch.credit import slots
from rlsearch.credit.slots import Slots

BLOCKS, ROWS, WIDTH, NODES = 2, 3, 8, 64


def laid(lengths: list[list[int]]) -> tuple[Slots, dict[int, list[tuple[int, int, int]]]]:
    """Nodes of so many tokens in each row, the rest unused, and where each node's tokens stand.

    Unused slots name node 0, as padding does, and those of the last block the nodes of the first, as idle blocks do.
    """
    node, use = np.zeros((BLOCKS, ROWS, WIDTH), np.int32), np.zeros((BLOCKS, ROWS, WIDTH), bool)
    where, index = {}, 0
    for row, counts in enumerate(lengths):
        at = 0
        for count in counts:
            count = min(count, WIDTH - at)
            node[0, row, at : at + count], use[0, row, at : at + count] = index, True
            where[index] = [(0, row, slot) for slot in range(at, at + count)]
            at, index = at + count, index + 1
    node[1] = node[0]
    return Slots(node, use, None, None), where


FUNCTIONS = {
    "sum": jax.jit(functools.partial(slots.node_sum, nodes=NODES)),
    "end": jax.jit(slots.to_node_end),
    "place": jax.jit(functools.partial(slots.place, nodes=NODES)),
}


def test_by_hand():
    """A row of a node of three tokens and one of two: 1 + (2 + 4/2)/2 = 3, 2 + 4/2 = 4, 4; and 8 + 16/2 = 16, 16."""
    given, _ = laid([[3, 2], [], []])
    x = np.full((BLOCKS, ROWS, WIDTH), 99.0, np.float32)
    x[0, 0, :5] = [1, 2, 4, 8, 16]
    assert np.asarray(FUNCTIONS["end"](x, given, 0.5))[0, 0].tolist() == [3, 4, 4, 16, 16, 0, 0, 0]
    ahead, behind = FUNCTIONS["place"](given)
    assert np.asarray(ahead)[0, 0, :5].tolist() == [0, 1, 2, 0, 1]
    assert np.asarray(behind)[0, 0, :5].tolist() == [2, 1, 0, 1, 0]
    assert np.asarray(FUNCTIONS["sum"](x, given))[:3].tolist() == [7, 24, 0]


LENGTHS = st.lists(st.lists(st.integers(1, 5), max_size=4), min_size=ROWS, max_size=ROWS)


@settings(max_examples=15)
@given(LENGTHS, st.integers(0, 99), st.sampled_from([0.0, 0.5, 1.0]))
def test_every_token_against_a_loop(lengths, seed, discount):
    given, where = laid(lengths)
    x = np.random.default_rng(seed).normal(size=given.use.shape).astype(np.float32)
    total, end = np.asarray(FUNCTIONS["sum"](x, given)), np.asarray(FUNCTIONS["end"](x, given, discount))
    ahead, behind = (np.asarray(found) for found in FUNCTIONS["place"](given))
    assert not end[~given.use].any()
    assert not total[len(where) :].any()
    for index, tokens in where.items():
        assert total[index] == pytest.approx(sum(float(x[token]) for token in tokens), abs=1e-5)
        for k, token in enumerate(tokens):
            expected = sum(discount**j * float(x[later]) for j, later in enumerate(tokens[k:]))
            assert end[token] == pytest.approx(expected, abs=1e-5)
            assert (ahead[token], behind[token]) == (k, len(tokens) - 1 - k)


def test_what_is_no_number_in_unused_slots_reaches_nothing():
    given, _ = laid([[2], [], []])
    x = np.where(given.use, np.float32(1), np.float32(np.nan))
    assert np.isfinite(FUNCTIONS["sum"](x, given)).all()
    assert np.asarray(FUNCTIONS["end"](x, given, 0.5)).sum() == 2.5
