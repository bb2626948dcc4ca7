"""Every path of a forest as a row of node indices: what per-path formulas and sums over leaves are computed on.

Axes: N nodes, L paths (one a leaf, in the order of the node table), D depths, K leaves below a node. Two layouts carry
all of credit. ``[L, D]`` has a row for each path and is read along it: discounts, returns, first errors. ``[N, K]`` has
a row for each node and is read over the leaves below it: means, maxima, and the sum of what its tokens are worth to
each. ``along`` and ``below`` lead into them. Zeros are summed as zeros, so that nothing is made of rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

NONE = -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Paths:
    """Where the paths of a node table lie.

    Attributes:
      node: the nodes of each path from its root to its leaf, NONE behind the leaf and in padded rows.
      depth: nodes above each node.
      first: row of the first path through each node.
      count: how many paths go through each node; they are rows ``[first, first + count)``. 0 for padded nodes.
      episode: row of the first path of each path's episode, which has several where it has several contexts.
      earlier: row of the path before it of its episode, NONE at the first.
      questions: above every question's index.
      fan: the most paths through one node that this table has room for (the size of axis K).
    """

    node: Int[np.ndarray, "L D"]
    depth: Int[np.ndarray, "N"]
    first: Int[np.ndarray, "N"]
    count: Int[np.ndarray, "N"]
    episode: Int[np.ndarray, "L"]
    earlier: Int[np.ndarray, "L"]
    questions: int = field(metadata={"static": True})
    fan: int = field(metadata={"static": True})

    @property
    def room(self) -> dict[str, int]:
        """What ``lay_out`` was asked for, or what it needed."""
        return {"leaves": self.node.shape[0], "depth": self.node.shape[1], "fan": self.fan, "questions": self.questions}


def lay_out(
    end: Int[np.ndarray, "N"], parent: Int[np.ndarray, "N"], question: Int[np.ndarray, "N"],
    episode: Int[np.ndarray, "N"], *, leaves: int = 1, depth: int = 1, fan: int = 1, questions: int = 1,
) -> Paths:  # fmt: skip
    """Lays out the paths, on the host, with room for at least ``leaves``, ``depth``, ``fan`` and ``questions``, each
    doubled until the table fits: so few shapes occur that a step is compiled a few times in a run at most. ``episode``
    is NONE where no path ends.
    """
    n, leaf = len(end), episode != NONE
    before = np.concatenate([[0], np.cumsum(leaf)]).astype(np.int32)
    level = (np.arange(n) - np.cumsum(np.bincount(end, minlength=n + 1)[:n])).astype(np.int32)
    ends = np.flatnonzero(leaf)
    count = before[end] - before[:-1]
    shape = (
        room(leaves, len(ends)),
        room(depth, int(level[ends].max(initial=0)) + 1),
        room(fan, int(count.max(initial=0))),
        room(questions, int(question.max(initial=0)) + 1),
    )
    node = np.full(shape[:2], NONE, np.int32)
    row, at = np.arange(len(ends)), ends
    while len(at):
        node[row, level[at]] = at
        row, at = row[parent[at] != NONE], parent[at[parent[at] != NONE]]
    number = np.unique(episode[ends], return_inverse=True)[1]
    order = np.argsort(number, kind="stable")
    again = np.concatenate([[False], np.diff(number[order]) == 0])[: len(order)]
    of_episode, earlier = np.arange(shape[0], dtype=np.int32), np.full(shape[0], NONE, np.int32)
    earlier[order[again]] = order[np.flatnonzero(again) - 1]
    of_episode[order] = order[np.maximum.accumulate(np.where(again, 0, np.arange(len(order))))]
    first = np.minimum(before[:-1], shape[0] - 1).astype(np.int32)
    return Paths(node, level, first, count.astype(np.int32), of_episode, earlier, questions=shape[3], fan=shape[2])


def room(floor: int, need: int) -> int:
    """``floor``, doubled until it holds ``need``: sizes that vary little, so that few programs are compiled."""
    size = max(floor, 1)
    while size < need:
        size *= 2
    return size


def along(x: Array, paths: Paths) -> Array:
    """Values of nodes ``[N, ...]`` along each path ``[L, D, ...]``, 0 where the path has ended."""
    on = on_path(paths)
    found = jnp.where(on.reshape(on.shape + (1,) * (x.ndim - 1)), x[jnp.maximum(paths.node, 0)], jnp.zeros((), x.dtype))
    return jax.lax.optimization_barrier(found)  # looked up once, and not in every loop that reads it


def on_path(paths: Paths) -> Bool[Array, "L D"]:
    """Where the paths have nodes."""
    return jnp.asarray(paths.node) != NONE


def leaf_of(paths: Paths) -> Int[Array, "L"]:
    """The leaf that each path ends in; node 0 for padded rows, which ``used`` tells apart."""
    return jnp.asarray(paths.node).max(axis=1, initial=0)


def used(paths: Paths) -> Bool[Array, "L"]:
    """Rows that hold a path."""
    return on_path(paths)[:, 0]


def below(y: Array, paths: Paths) -> Array:
    """Values of the paths through each node, ``[N, K]``, 0 beyond the last: of each path ``[L]``, or of each node on
    each path ``[L, D]``, read at that node.
    """
    return at(y, jnp.arange(paths.depth.shape[0]), paths)


def at(y: Array, node: Int[Array, "..."], paths: Paths) -> Array:
    """``below`` of some nodes, ``[..., K]``."""
    column = jnp.arange(paths.fan).reshape((1,) * node.ndim + (-1,))
    first, count, depth = (jnp.asarray(x)[node][..., None] for x in (paths.first, paths.count, paths.depth))
    row = jnp.minimum(first + column, paths.node.shape[0] - 1)
    y = jnp.asarray(y)
    found = y[row] if y.ndim == 1 else y[row, depth]
    return jnp.where(column < count, found, jnp.zeros((), y.dtype))


def average(values: Float[Array, "N K"], inside: Bool[Array, "N K"]) -> tuple[Float[Array, "N"], Bool[Array, "N"]]:
    """Mean of each row over its columns ``inside``, and whether there are any. Of equal values it is that value."""
    count = jnp.maximum(inside.sum(axis=1), 1)
    # The mean of differences to one of the values: equal values leave exact zeros.
    origin = jnp.where(inside, values, -jnp.inf).max(axis=1)
    origin = jnp.where(jnp.isfinite(origin), origin, 0.0)
    mean = origin + jnp.where(inside, values - origin[:, None], 0.0).sum(axis=1) / count
    return mean, inside.any(axis=1)


def before(y: Float[Array, "L D"]) -> Float[Array, "L D"]:
    """Sum over the earlier nodes of each path, without the node itself, added from the root on."""
    through_here = to_go(y[:, ::-1])[:, ::-1]
    return jnp.pad(through_here[:, :-1], ((0, 0), (1, 0)))


def to_go(y: Float[Array, "L D"], discount: float | Float[Array, "L D"] = 1.0) -> Float[Array, "L D"]:
    """``G_d = y_d + discount_d G_{d+1}`` along each path, from its leaf backwards; ``discount`` may differ by node."""
    rate = jnp.broadcast_to(jnp.asarray(discount, y.dtype), y.shape)

    def one(later, here):
        reward, by = here
        now = reward + by * later
        return now, now

    _, found = jax.lax.scan(one, jnp.zeros(y.shape[0], y.dtype), (y.T, rate.T), reverse=True)
    return found.T
