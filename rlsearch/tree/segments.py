"""Reductions by group, for use inside jit. Axes: X entries or rows (nodes, paths or tokens), D entries of a row,
C columns.

Values may have an axis behind those of their groups: entries ``[X, D]`` in rows of groups ``[X]``. Results have the
shape of the values. Adding up a row first and the rows afterwards is many times cheaper than adding up single entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def tree_index(parent: Int[Array, "N"]) -> Int[Array, "N"]:
    """Index of the tree that each node belongs to."""
    return jnp.cumsum(parent < 0) - 1


@dataclass(frozen=True)
class Groups:
    """Which group each entry belongs to: that of its row or, with columns, that of its row and its column together.

    Attributes:
      index: of each row's group.
      count: above every index.
      column: of each entry of a row, below ``columns``; None where there is one, or each entry stands in its own.
      columns: how many there are; small, since every row has room for all of them.
    """

    index: Int[Array, "X"]
    count: int
    column: Int[Array, "X D"] | None = None
    columns: int = 1

    def fold(self, x: Float[Array, "X D"], empty: float) -> Float[Array, "X C"]:
        """The entries of a row added up by column, or their maximum where ``empty`` is -inf."""
        if self.column is None and self.columns > 1:
            return x
        if self.column is None:
            rows = x.reshape(self.index.size, -1)
            return (rows.sum(axis=1) if empty == 0 else rows.max(axis=1))[:, None]
        join, found = (jnp.add, 0.0) if empty == 0 else (jnp.maximum, -jnp.inf)
        x, column = jax.lax.optimization_barrier((x, self.column))  # worked out once, and not for every d
        for d in range(x.shape[1]):
            found = join(found, jnp.where(column[:, d, None] == jnp.arange(self.columns)[None], x[:, d, None], empty))
        return found

    def unfold(self, y: Float[Array, "X C"], shape: tuple[int, ...]) -> Float[Array, "X D"]:
        """What stands in each entry's column, for entries of that shape."""
        if self.column is None and self.columns > 1:
            return y
        if self.column is None:
            return jnp.broadcast_to(y.reshape(self.index.shape + (1,) * (len(shape) - self.index.ndim)), shape)
        found, y = jnp.zeros(shape, y.dtype), jax.lax.optimization_barrier(y)
        for c in range(self.columns):
            found = jnp.where(self.column == c, y[:, c, None], found)
        return found


def _reduce(xs: list[Array], groups: Groups, empty: float) -> list[Array]:
    """The sum of each x over its group (``empty`` 0) or its maximum (-inf), at each entry; all in one pass."""
    reduce = jax.ops.segment_sum if empty == 0 else jax.ops.segment_max
    rows, index = jnp.concatenate([groups.fold(x, empty) for x in xs], axis=1), groups.index.reshape(-1)
    # Kept out of the loops that come after, where every entry of a row would look its group up again.
    found = jax.lax.optimization_barrier(reduce(rows, index, groups.count)[index])
    return [groups.unfold(y, x.shape) for y, x in zip(jnp.split(found, len(xs), axis=1), xs, strict=True)]


def total(x: Float[Array, "X"], use: Bool[Array, "X"], groups: Groups) -> Float[Array, "X"]:
    """Sum of x over ``use`` in each entry's group."""
    return _reduce([jnp.where(use, x, 0.0)], groups, 0.0)[0]


def highest(x: Float[Array, "X"], use: Bool[Array, "X"], groups: Groups) -> Float[Array, "X"]:
    """Maximum of x over ``use`` in each entry's group, -inf where none is in use."""
    return _reduce([jnp.where(use, x, -jnp.inf)], groups, -jnp.inf)[0]


def mean(x: Float[Array, "X"], use: Bool[Array, "X"], groups: Groups) -> Float[Array, "X"]:
    """Mean of x over ``use`` in each entry's group, 0 where none is in use; of equal values it is that value."""
    return moments(x, use, groups).mean


@dataclass(frozen=True)
class Moments:
    """What is known of each entry's group.

    Attributes:
      count: entries in use.
      mean: 0 where none is in use; of equal values it is that value.
      deviation: the population's.
      extent: maximum minus minimum, -inf where none is in use.
    """

    count: Float[Array, "X"]
    mean: Float[Array, "X"]
    deviation: Float[Array, "X"]
    extent: Float[Array, "X"]

    @property
    def constant(self) -> Bool[Array, "X"]:
        """Decided by ``max == min``, never by a small deviation: equal floats have a deviation of rounding."""
        return self.extent <= 0


def moments(x: Float[Array, "X"], use: Bool[Array, "X"], groups: Groups) -> Moments:
    """Count, mean, population deviation and extent of x over ``use`` in each entry's group."""
    high, negative = _reduce([jnp.where(use, y, -jnp.inf) for y in (x, -x)], groups, -jnp.inf)
    origin = jnp.where(jnp.isfinite(high), 0.5 * (high - negative), 0.0)  # the middle: of equal values, that value
    count, above = _reduce([use.astype(x.dtype), jnp.where(use, x - origin, 0.0)], groups, 0.0)
    mean = origin + above / jnp.maximum(count, 1.0)
    (square,) = _reduce([jnp.where(use, jnp.square(x - mean), 0.0)], groups, 0.0)
    return Moments(count, mean, jnp.sqrt(square / jnp.maximum(count, 1.0)), high + negative)
