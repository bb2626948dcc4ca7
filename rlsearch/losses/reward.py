"""What trains a reward model: pairs of which one is better, or numbers to predict.

Axes: ... any shape of pairs or of sequences. Means are over those in use; of none they are 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def bradley_terry(
    better: Float[Array, "..."], worse: Float[Array, "..."], use: Bool[Array, "..."], *, margin: float
) -> Float[Array, ""]:
    """Mean of ``-log sigmoid(better - worse - margin)``.

    With margin 0 the negative log-likelihood of the preferences under Bradley and Terry (1952), as Ouyang et al. (arXiv
    2203.02155, equation 1) train reward models; the margin is that of Llama 2 (arXiv 2307.09288, equation 2).
    """
    return _mean(jax.nn.softplus(margin - (better - worse)), use)


def regression(score: Float[Array, "..."], target: Float[Array, "..."], use: Bool[Array, "..."]) -> Float[Array, ""]:
    """Mean of ``(score - target)^2``."""
    return _mean(jnp.square(jnp.where(use, score - target, 0.0)), use)


def _mean(x: Float[Array, "..."], use: Bool[Array, "..."]) -> Float[Array, ""]:
    return jnp.where(use, x, 0.0).sum() / jnp.maximum(use.sum(), 1)
