"""Rotary position embedding in the half-split layout of transformers."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlsearch.models.architecture import RopeScaling


def frequencies(head_dim: int, theta: float, scaling: RopeScaling | None = None) -> Float[Array, "F"]:
    """Radians per token of each of the ``head_dim / 2`` planes: ``theta ** (-2 i / head_dim)`` (Su et al., 2021).

    Scaling of kind "linear" divides all by its factor (Chen et al., 2023, arXiv:2306.15595). Llama 3's does so to
    planes whose wavelength exceeds ``original_positions / low``, leaves those below ``original_positions / high`` as
    they are, and goes over between the two in proportion to the number of turns within ``original_positions``.
    """
    plain = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    turns = scaling.original_positions * plain / (2 * math.pi)
    kept = jnp.clip((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0)
    return kept * plain + (1 - kept) * plain / scaling.factor


def rotate(
    x: Float[Array, "B T H D"], position: Int[Array, "B T"], frequency: Float[Array, "F"]
) -> Float[Array, "B T H D"]:
    """Turns plane i, spanned by elements i and i + D/2, by ``position * frequency[i]``; angles in float32."""
    angle = position[:, :, None, None].astype(jnp.float32) * frequency[None, None, None]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
