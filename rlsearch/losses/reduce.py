"""Reductions: how much a token of each episode weighs in the loss.

They are fixed by the whole batch, so that neither packing nor accumulation can change it. Axes: N nodes; episodes are
leaves.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def token(length: Float[Array, "N"], kept: Bool[Array, "N"]) -> Float[Array, "N"]:
    """Every token of the batch weighs the same (DAPO, arXiv 2503.14476, equation 8): 1 / sum of lengths."""
    count = jnp.where(kept, length, 0.0).sum()
    return jnp.broadcast_to(1.0 / jnp.maximum(count, 1.0), length.shape)


def sequence(length: Float[Array, "N"], kept: Bool[Array, "N"]) -> Float[Array, "N"]:
    """Every episode weighs the same, and its tokens share that (GRPO, arXiv 2402.03300): 1 / (episodes x length).

    An episode without sampled tokens has nothing to share, and is not counted.
    """
    count = (kept & (length > 0)).sum()
    return 1.0 / (jnp.maximum(count, 1) * jnp.maximum(length, 1.0))


REDUCTIONS = {"token": token, "sequence": sequence}
