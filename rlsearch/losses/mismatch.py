"""Corrections for a sampler whose probabilities are not the trainer's: weights of the surrogate, without gradient.

Each takes ``log pi_old - log pi_sampler`` of tokens, both at the sampling temperature and before any update on the
batch, and gives the factor of each token.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.errors import InputError


def truncated(gap: Float[Array, "..."], *, cap: float) -> Float[Array, "..."]:
    """Truncated importance sampling: ``min(pi_old / pi_sampler, cap)`` (Yao et al., "Your efficient RL framework
    secretly brings you off-policy RL training", 2025).
    """
    if cap <= 0:
        raise InputError(f"mismatch truncated: cap {cap} must be above 0")
    return jnp.minimum(jnp.exp(gap), cap)


def masked(gap: Float[Array, "..."], *, low: float, high: float) -> Float[Array, "..."]:
    """Masked importance sampling (IcePop, Ling team, 2025): the ratio where it lies in [low, high], else 0."""
    if not 0 <= low < high:
        raise InputError(f"mismatch masked: low {low} must be 0 or more, and less than high {high}")
    ratio = jnp.exp(gap)
    return jnp.where((ratio >= low) & (ratio <= high), ratio, 0.0)


CORRECTIONS = {"truncated": truncated, "masked": masked}
