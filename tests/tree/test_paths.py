"""The layouts of paths, and what is read along them and over the leaves below, against recursion."""

from __future__ import annotations

import functools
import sys

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsearch.tree import paths as layouts
from rlsearch.tree.build import Branch, build, chain
from rlsearch.tree.forest import NONE, Forest, Kind, leaves
from rlsearch.tree.pack import pad_nodes
from rlsearch.tree.paths import Paths, lay_out, room
from tests.tree.random_forests import ancestors, forests

# Room for every random forest, so that each operation is compiled once; most rows are padding.
NODES, LEAVES, DEPTH, FAN = 512, 512, 8, 128
SEEDS = st.integers(0, 999)
FORESTS = forests(contexts=True)


def padded(forest: Forest) -> Paths:
    return pad_nodes(forest.nodes, NODES, leaves=LEAVES, depth=DEPTH, fan=FAN).paths


def paths_of(forest: Forest) -> list[list[int]]:
    """Nodes from the root to each leaf, by following parents."""
    return [ancestors(forest.nodes.parent, leaf)[::-1] for leaf in np.flatnonzero(leaves(forest.nodes))]


def noise(seed: int, *shape: int) -> np.ndarray:
    """Values and many zeros of both signs."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * rng.integers(0, 2, size=shape)).astype(np.float32)


def mean_below(value, use, laid: Paths):
    """``average`` over the paths through each node."""
    return layouts.average(layouts.below(value, laid), layouts.below(use, laid))


@functools.cache
def jitted(name: str):
    function = jax.jit(mean_below if name == "mean_below" else getattr(layouts, name))
    return lambda *arguments: jax.tree.map(np.asarray, function(*arguments))


@given(FORESTS)
def test_rows_are_the_paths_of_the_leaves_in_their_order(forest):
    laid, wanted = padded(forest), paths_of(forest)
    for row, path in enumerate(wanted):
        assert laid.node[row].tolist() == path + [NONE] * (DEPTH - len(path))
    assert (laid.node[len(wanted) :] == NONE).all()
    for node in range(len(forest.nodes.end)):
        through = [row for row, path in enumerate(wanted) if node in path]
        assert laid.depth[node] == len(ancestors(forest.nodes.parent, node)) - 1
        assert list(range(laid.first[node], laid.first[node] + laid.count[node])) == through
    assert not laid.count[len(forest.nodes.end) :].any()


@given(forests(contexts=True))
def test_paths_know_the_earlier_ones_of_their_episode(forest):
    laid, episode = padded(forest), forest.nodes.episode[leaves(forest.nodes)].tolist()
    assert laid.episode.tolist() == [*map(episode.index, episode), *range(len(episode), LEAVES)]
    assert laid.earlier.tolist() == [
        max((other for other in range(row) if episode[other] == episode[row]), default=NONE)
        for row in range(len(episode))
    ] + [NONE] * (LEAVES - len(episode))


@given(FORESTS, st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_room_is_the_floor_doubled_until_all_fits(forest, most_leaves, depth, fan):
    nodes, wanted = forest.nodes, paths_of(forest)
    laid = lay_out(nodes.end, nodes.parent, nodes.question, nodes.episode, leaves=most_leaves, depth=depth, fan=fan)
    widest = max(sum(node in path for path in wanted) for node in range(len(nodes.end)))
    assert (*laid.node.shape, laid.fan) == (
        room(most_leaves, len(wanted)), room(depth, max(map(len, wanted))), room(fan, widest),
    )  # fmt: skip


@pytest.mark.parametrize(("floor", "need", "size"), [(3, 3, 3), (3, 4, 6), (3, 7, 12), (1, 0, 1), (0, 3, 4), (4, 0, 4)])
def test_room(floor, need, size):
    assert room(floor, need) == size


@given(FORESTS, SEEDS)
def test_along(forest, seed):
    x = noise(seed, NODES)
    found, both = jitted("along")(x, padded(forest)), jitted("along")(np.stack([x, -x], axis=1), padded(forest))
    wanted = np.zeros((LEAVES, DEPTH), np.float32)
    for row, path in enumerate(paths_of(forest)):
        wanted[row, : len(path)] = x[path]
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(both, np.stack([wanted, -wanted], axis=2))
    assert jitted("along")(x > 0, padded(forest)).dtype == bool


@given(FORESTS)
def test_leaves_and_used_rows(forest):
    laid, ends = padded(forest), np.flatnonzero(leaves(forest.nodes))
    assert jitted("leaf_of")(laid)[: len(ends)].tolist() == ends.tolist()
    assert jitted("used")(laid).tolist() == [True] * len(ends) + [False] * (LEAVES - len(ends))
    assert jitted("on_path")(laid).sum(axis=1).tolist() == [len(path) for path in paths_of(forest)] + [0] * (
        LEAVES - len(ends)
    )


def by_node(forest: Forest, of) -> np.ndarray:
    """``of(row, depth)`` of every path through each node, in order, zeros behind: [N, K]."""
    found, wanted = np.zeros((NODES, FAN), np.float32), paths_of(forest)
    for node in range(len(forest.nodes.end)):
        values = [of(row, path.index(node)) for row, path in enumerate(wanted) if node in path]
        found[node, : len(values)] = values
    return found


@settings(max_examples=50)
@given(FORESTS, SEEDS)
def test_below(forest, seed):
    of_path, of_pair, laid = noise(seed, LEAVES), noise(seed, LEAVES, DEPTH), padded(forest)
    np.testing.assert_array_equal(jitted("below")(of_path, laid), by_node(forest, lambda row, _: of_path[row]))
    np.testing.assert_array_equal(jitted("below")(of_pair, laid), by_node(forest, lambda row, at: of_pair[row, at]))


@settings(max_examples=50)
@given(FORESTS, SEEDS)
def test_average_is_the_mean_over_the_paths_through_a_node(forest, seed):
    """By recursion over children: the sum and the count of what is in use at or below each node."""
    value, use, nodes = noise(seed, LEAVES), noise(seed + 1, LEAVES) > 0, forest.nodes
    row = {leaf: row for row, leaf in enumerate(np.flatnonzero(leaves(nodes)))}

    def total(node: int) -> tuple[float, int]:
        if node in row:
            return (float(value[row[node]]), 1) if use[row[node]] else (0.0, 0)
        parts = [total(child) for child in np.flatnonzero(nodes.parent == node)]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)

    mean, there = jitted("mean_below")(value, use, padded(forest))
    for node in range(NODES):
        amount, count = total(node) if node < len(nodes.end) else (0.0, 0)
        assert there[node] == (count > 0)
        assert mean[node] == (pytest.approx(amount / count, abs=1e-6) if count else 0.0)


@given(FORESTS, st.sampled_from([0.1, 0.6, 1 / 3, 7e8, -1e-20]), SEEDS)
def test_average_of_equal_values_is_that_value(forest, value, seed):
    use = noise(seed, LEAVES) > 0
    mean, there = jitted("mean_below")(np.full(LEAVES, value, np.float32), use, padded(forest))
    assert set(mean[there].tolist()) <= {float(np.float32(value))}


@given(SEEDS)
def test_before(seed):
    """Added from the root on, to the last bit: what cancels leaves nothing."""
    y = noise(seed, LEAVES, DEPTH)
    y[:, 2] = -y[:, 1]
    wanted = np.zeros_like(y)
    for at in range(1, DEPTH):
        wanted[:, at] = wanted[:, at - 1] + y[:, at - 1]
    np.testing.assert_array_equal(jitted("before")(y), wanted)
    assert not jitted("before")(y - np.where(np.arange(DEPTH)[None] == 0, y, 0))[:, 3].any()


@given(SEEDS, st.sampled_from([1.0, 0.5, 0.0]))
def test_to_go(seed, discount):
    y, rate = noise(seed, LEAVES, DEPTH), np.abs(noise(seed + 1, LEAVES, DEPTH))

    def go(row: list[float], rates: list[float]) -> list[float]:
        if not row:
            return []
        rest = go(row[1:], rates[1:])
        return [row[0] + rates[0] * (rest[0] if rest else 0.0), *rest]

    for by in (np.full_like(y, discount), rate):
        wanted = [go(row, rates) for row, rates in zip(y.tolist(), by.tolist(), strict=True)]
        np.testing.assert_allclose(jitted("to_go")(y, by), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(jitted("to_go")(y, discount), jitted("to_go")(y, np.full_like(y, discount)))


@given(SEEDS, st.integers(0, DEPTH))
def test_sums_of_nothing_are_exactly_nothing(seed, length):
    y = noise(seed, LEAVES, DEPTH)
    y[:, length:] = 0
    assert not jitted("to_go")(y, 1.0)[:, length:].any()
    assert not jitted("before")(y[:, ::-1])[:, : DEPTH - length + 1].any()
    assert not jitted("before")(np.zeros_like(y)).any()


def test_laying_out_takes_no_loop_over_nodes():
    """As many lines run for a thousand trees as for one."""

    def lines(trees: int) -> int:
        branch = Branch(Kind.ANSWER, 0, [1], [-1.0])
        chains = [chain([branch, branch, branch], episode=i, rewards=[0.0]) for i in range(trees)]
        nodes, count = build([(0, root) for root in chains], terms=1).nodes, 0

        def trace(frame, event, _):
            nonlocal count
            if frame.f_code.co_filename != lay_out.__code__.co_filename:
                return None
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            lay_out(nodes.end, nodes.parent, nodes.question, nodes.episode, leaves=2048, depth=4, fan=1)
        finally:
            sys.settrace(before)
        return count

    assert lines(1000) == lines(1) > 5


def test_a_hand_tree():
    """Node 0 with children 1 (leaves 2 and 3) and 4; leaves are worth 1, 3 and 8."""

    def leaf(episode: int) -> Branch:
        return Branch(Kind.ANSWER, 0, [1], [-1.0], episode=episode, rewards=[0.0])

    query = Branch(Kind.QUERY, 0, [1], [-1.0], [leaf(0), leaf(1)])
    nodes = build([(0, Branch(Kind.PROMPT, 0, [1], children=[query, leaf(2)]))], terms=1).nodes
    laid = nodes.paths
    assert laid.node.tolist() == [[0, 1, 2, NONE], [0, 1, 3, NONE], [0, 4, NONE, NONE], [NONE] * 4]
    assert laid.depth.tolist() == [0, 1, 2, 2, 1]
    assert laid.first.tolist() == [0, 0, 0, 1, 2]
    assert laid.count.tolist() == [3, 2, 1, 1, 1]
    assert laid.fan == 4
    worth = np.array([1, 3, 8, 99], np.float32)
    mean, there = jitted("mean_below")(worth, np.array([True, True, True, False]), laid)
    assert mean.tolist() == [4, 2, 1, 3, 8]
    assert there.all()
    assert jitted("below")(worth, laid).tolist() == [
        [1, 3, 8, 0], [1, 3, 0, 0], [1, 0, 0, 0], [3, 0, 0, 0], [8, 0, 0, 0],
    ]  # fmt: skip
    assert jitted("along")(np.arange(5.0), laid).tolist() == [[0, 1, 2, 0], [0, 1, 3, 0], [0, 4, 0, 0], [0] * 4]
