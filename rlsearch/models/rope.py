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
    they are, and goes over between the two in proportion to the number of turns within ``original_positions``. YaRN's
    (Peng et al., 2023, arXiv:2309.00071, section 3.2) has the same ends, and goes over in proportion to the index of
    the plane, between the whole ones that enclose those which turn ``high`` and ``low`` times.
    """
    plain = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "yarn":
        first, last = _ends(head_dim, theta, scaling)
        kept = 1 - jnp.clip((jnp.arange(head_dim // 2) - first) / max(last - first, 1e-3), 0.0, 1.0)
        return kept * plain + (1 - kept) * plain / scaling.factor
    turns = scaling.original_positions * plain / (2 * math.pi)
    kept = jnp.clip((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0)
    return kept * plain + (1 - kept) * plain / scaling.factor


def _ends(head_dim: int, theta: float, scaling: RopeScaling) -> tuple[int, int]:
    """The planes between which YaRN goes over: index i turns ``original / (2 pi theta ** (2 i / D))`` times."""

    def index(turns: float) -> float:
        return head_dim * math.log(scaling.original_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

    return max(math.floor(index(scaling.high)), 0), min(math.ceil(index(scaling.low)), head_dim - 1)


def stretch(scaling: RopeScaling | None) -> float:
    """What rotated queries and keys are multiplied by: of YaRN ``0.1 log(factor) + 1`` (its equation 22), else 1."""
    return 0.1 * math.log(max(scaling.factor, 1.0)) + 1.0 if scaling and scaling.kind == "yarn" else 1.0


def rotate(
    x: Float[Array, "B T H D"], position: Int[Array, "B T"], frequency: Float[Array, "F"], stretch: float = 1.0
) -> Float[Array, "B T H D"]:
    """Turns plane i, of elements i and i + D/2, by ``position * frequency[i]``, and stretches it; angles in float32."""
    angle = position[:, :, None, None].astype(jnp.float32) * frequency[None, None, None]
    cos, sin = jnp.cos(angle) * stretch, jnp.sin(angle) * stretch
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
