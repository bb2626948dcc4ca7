"""Reductions over the node table, for use inside jit. Axes: N nodes, Q questions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def below(end: Int[Array, "N"]) -> Float[Array, "N N"]:
    """Entry (i, j) is 1 where node j is i or a descendant of it: ``i <= j < end[i]``."""
    index = jnp.arange(end.shape[0])
    return ((index[:, None] <= index[None, :]) & (index[None, :] < end[:, None])).astype(jnp.float32)


def subtree_sum(x: Float[Array, "N"], end: Int[Array, "N"]) -> Float[Array, "N"]:
    """Sum of x over each node and its descendants. A matmul, so that zeros sum to exactly zero."""
    return jnp.matmul(below(end), x, precision=jax.lax.Precision.HIGHEST)


def path_sum(x: Float[Array, "N"], end: Int[Array, "N"]) -> Float[Array, "N"]:
    """Sum of x over each node and its ancestors."""
    return jnp.matmul(x, below(end), precision=jax.lax.Precision.HIGHEST)


def tree_index(parent: Int[Array, "N"]) -> Int[Array, "N"]:
    """Index of the tree that each node belongs to."""
    return jnp.cumsum(parent < 0) - 1


def moments(
    x: Float[Array, "N"], use: Bool[Array, "N"], segment: Int[Array, "N"]
) -> tuple[Float[Array, "N"], Float[Array, "N"], Bool[Array, "N"]]:
    """Mean and population standard deviation of x over ``use`` in each node's segment, and whether x is constant there.

    Constancy is decided by ``max == min``, never by a small deviation: equal floats have a deviation of rounding.
    """
    n = x.shape[0]
    count = jnp.maximum(jax.ops.segment_sum(use.astype(jnp.float32), segment, n), 1.0)
    mean = jax.ops.segment_sum(jnp.where(use, x, 0.0), segment, n) / count
    centred = jnp.where(use, x - mean[segment], 0.0)
    deviation = jnp.sqrt(jax.ops.segment_sum(jnp.square(centred), segment, n) / count)
    high = jax.ops.segment_max(jnp.where(use, x, -jnp.inf), segment, n)
    low = jax.ops.segment_min(jnp.where(use, x, jnp.inf), segment, n)
    return mean[segment], deviation[segment], (high <= low)[segment]
