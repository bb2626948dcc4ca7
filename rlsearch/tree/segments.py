"""Reductions by group over any axis, for use inside jit. Axes: X entries (nodes, paths or tokens), N nodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def tree_index(parent: Int[Array, "N"]) -> Int[Array, "N"]:
    """Index of the tree that each node belongs to."""
    return jnp.cumsum(parent < 0) - 1


def total(x: Float[Array, "X"], use: Bool[Array, "X"], segment: Int[Array, "X"], groups: int) -> Float[Array, "X"]:
    """Sum of x over ``use`` in each entry's segment; ids are below ``groups``."""
    return jax.ops.segment_sum(jnp.where(use, x, 0.0), segment, groups)[segment]


def mean(x: Float[Array, "X"], use: Bool[Array, "X"], segment: Int[Array, "X"], groups: int) -> Float[Array, "X"]:
    """Mean of x over ``use`` in each entry's segment, 0 where none is in use; of equal values it is that value."""
    count = jnp.maximum(total(jnp.ones_like(x), use, segment, groups), 1.0)
    origin = highest(x, use, segment, groups)
    origin = jnp.where(jnp.isfinite(origin), origin, 0.0)
    for _ in range(2):  # the second time takes what rounding the first has left
        origin = origin + total(x - origin, use, segment, groups) / count
    return origin


def highest(x: Float[Array, "X"], use: Bool[Array, "X"], segment: Int[Array, "X"], groups: int) -> Float[Array, "X"]:
    """Maximum of x over ``use`` in each entry's segment, -inf where none is in use."""
    return jax.ops.segment_max(jnp.where(use, x, -jnp.inf), segment, groups)[segment]


def moments(
    x: Float[Array, "X"], use: Bool[Array, "X"], segment: Int[Array, "X"], groups: int
) -> tuple[Float[Array, "X"], Float[Array, "X"], Bool[Array, "X"]]:
    """Mean and population standard deviation of x over ``use`` in each entry's segment, and whether x is constant.

    Constancy is decided by ``max == min``, never by a small deviation: equal floats have a deviation of rounding.
    """
    centre = mean(x, use, segment, groups)
    deviation = jnp.sqrt(mean(jnp.square(jnp.where(use, x - centre, 0.0)), use, segment, groups))
    return centre, deviation, highest(x, use, segment, groups) <= -highest(-x, use, segment, groups)
