"""Clips: what a token's episode contributes to the objective, as a function of log-ratio and advantage.

Each takes log-ratios, advantages and the variance of the rewards in the token's question, of shapes that broadcast to
[..., K], and gives the value to be maximised. Gradients flow through the log-ratio alone.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def ppo(
    log_ratio: Float[Array, "... K"], advantage: Float[Array, "... K"], spread: Float[Array, "... 1"], *, low: float,
    high: float,
) -> Float[Array, "... K"]:  # fmt: skip
    """``min(ratio A, clip(ratio, 1 - low, 1 + high) A)``: PPO, arXiv 1707.06347, equation 7; with ``high > low`` it is
    DAPO's clip-higher, arXiv 2503.14476, equation 10.
    """
    ratio = jnp.exp(log_ratio)
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - low, 1.0 + high) * advantage)


CLIPS = {"ppo": ppo}
