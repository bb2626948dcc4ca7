"""Rotary position embedding in the half-split layout of transformers."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def frequencies(head_dim: int, theta: float) -> Float[Array, "F"]:
    """Radians per token of each of the ``head_dim / 2`` planes: ``theta ** (-2 i / head_dim)`` (Su et al., 2021)."""
    return theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)


def rotate(x: Float[Array, "B T H D"], position: Int[Array, "B T"], theta: float) -> Float[Array, "B T H D"]:
    """Turns plane i, spanned by elements i and i + D/2, by ``position * frequencies[i]``; angles in float32."""
    angle = position[:, :, None, None].astype(jnp.float32) * frequencies(x.shape[-1], theta)[None, None, None]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
