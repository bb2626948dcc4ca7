"""Log-probabilities of chosen tokens. Axes: B rows, S targets, V vocabulary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def score(
    logits: Float[Array, "B S V"], token_id: Int[Array, "B S"], *, temperature: float
) -> tuple[Float[Array, "B S"], Float[Array, "B S"]]:
    """Log-probability of each target and entropy of its distribution, at the temperature that it was sampled with."""
    logp = jax.nn.log_softmax(logits / temperature)
    chosen = jnp.take_along_axis(logp, token_id[..., None], axis=-1)[..., 0]
    return chosen, -jnp.sum(jnp.exp(logp) * logp, axis=-1)
