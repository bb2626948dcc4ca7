"""Reductions over the node table against recursion and loops."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.tree import segments
from rlsearch.tree.forest import NONE
from rlsearch.tree.pack import pad_nodes
from rlsearch.tree.segments import Groups
from tests.tree.random_forests import ancestors, forests

NODES = 512  # one compilation serves every forest


def padded(forest):
    return pad_nodes(forest.nodes, NODES, leaves=512, depth=8, fan=128)


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=NODES).astype(np.float32)


@given(forests())
def test_tree_index_counts_roots(forest):
    roots = [ancestors(forest.nodes.parent, node)[-1] for node in range(len(forest.nodes.end))]
    order = np.flatnonzero(forest.nodes.parent == NONE).tolist()
    assert np.asarray(segments.tree_index(padded(forest).parent))[: len(roots)].tolist() == [
        order.index(root) for root in roots
    ]


@functools.partial(jax.jit, static_argnames=("count", "columns"))
def jitted(x, use, index, count, column, columns):
    found = segments.moments(x, use, Groups(index, count, column, columns))
    return found.count, found.mean, found.deviation, found.constant


def moments(x, use, groups: Groups) -> list[np.ndarray]:
    return [np.asarray(y) for y in jitted(x, use, groups.index, groups.count, groups.column, groups.columns)]


ROWS, WIDTH, COLUMNS = 12, 5, 3


@given(st.integers(0, 999), st.sampled_from(["pooled", "named", "apart"]))
def test_entries_of_rows_are_grouped_like_lone_ones(seed, how):
    """In their row's group, or that and the column that each names, or that and their own place."""
    rng = np.random.default_rng(seed)
    x, use = rng.normal(size=(ROWS, WIDTH)).astype(np.float32), rng.random((ROWS, WIDTH)) < 0.7
    index = rng.integers(4, size=ROWS)
    named = rng.integers(COLUMNS, size=(ROWS, WIDTH))
    rows, column = {
        "pooled": (Groups(index, 4), np.zeros((ROWS, WIDTH), int)),
        "named": (Groups(index, 4, named, COLUMNS), named),
        "apart": (Groups(index, 4, columns=WIDTH), np.tile(np.arange(WIDTH), (ROWS, 1))),
    }[how]
    found = moments(x, use, rows)
    lone = moments(x.reshape(-1), use.reshape(-1), Groups((index[:, None] * WIDTH + column).reshape(-1), 4 * WIDTH))
    for one, other in zip(found, lone, strict=True):
        np.testing.assert_allclose(one.reshape(-1), other, atol=1e-6)


@given(st.integers(0, 999), st.integers(1, 12))
def test_moments_of_each_segment(seed, groups):
    rng = np.random.default_rng(seed)
    x, use, segment = values(seed), rng.random(NODES) < 0.2, rng.integers(groups, size=NODES)
    count, mean, deviation, constant = moments(x, use, Groups(segment, NODES))
    for group in range(groups):
        members = x[use & (segment == group)]
        at = np.flatnonzero(segment == group)
        assert (count[at] == len(members)).all()
        if len(members):
            np.testing.assert_allclose(mean[at], members.mean(), atol=1e-6)
            np.testing.assert_allclose(deviation[at], members.std(), atol=1e-6)
        assert (constant[at] == (len(set(members.tolist())) <= 1)).all()


@pytest.mark.parametrize(("value", "count"), [(0.6, 6), (0.35, 7), (0.7, 7), (1 / 3, 31)])
def test_constant_is_decided_by_the_extremes(value, count):
    """Six float32 rewards of .6 have a deviation of 6e-8, seven of .7 one of 1.7e-4 by E[x^2] - E[x]^2."""
    x = jnp.full(count, value, jnp.float32)
    use, segment = jnp.ones(count, bool), jnp.zeros(count, jnp.int32)
    assert np.asarray(segments.moments(x, use, Groups(segment, 1)).constant).all()
    nearly = x.at[0].set(np.nextafter(np.float32(value), np.float32(1)))
    assert not np.asarray(segments.moments(nearly, use, Groups(segment, 1)).constant).any()


def test_an_empty_segment_has_finite_moments():
    x, use, segment = jnp.ones(3), jnp.zeros(3, bool), jnp.zeros(3, jnp.int32)
    _, mean, deviation, constant = moments(x, use, Groups(segment, 1))
    assert (np.asarray(mean) == 0).all()
    assert (np.asarray(deviation) == 0).all()
    assert np.asarray(constant).all()
