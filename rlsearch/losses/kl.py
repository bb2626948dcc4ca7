"""Estimators of KL(policy || reference) from samples of the policy (Schulman, "Approximating KL Divergence", 2020).

With ``d = log reference - log policy`` at the sampled token: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d. k1 and k3 are
unbiased for the value, k3 never negative and of lower variance.

In the reward (``place`` "reward") the estimate is a number: k1 there gives, through the policy gradient, the gradient
of KL(policy || reference); k2 and k3 give that of other penalties. As a loss (``place`` "loss") what counts is the
expected gradient of the estimate itself, with tokens sampled from the policy: that of k1 is zero, whatever the
policies, so it only adds noise; that of k2 is exactly the gradient of KL(policy || reference); that of k3 is the
gradient of KL(reference || policy). ``tests/losses/test_kl.py`` works all three out on a policy of three tokens.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.errors import InputError

ESTIMATORS = {
    "k1": lambda d: -d,
    "k2": lambda d: 0.5 * jnp.square(d),
    "k3": lambda d: jnp.expm1(d) - d,
}
PLACES = ("loss", "reward")


def estimate(name: str, logp: Float[Array, "..."], reference_logp: Float[Array, "..."]) -> Float[Array, "..."]:
    """The estimate at every token."""
    return ESTIMATORS[name](reference_logp - logp)


def uniform(logp: Float[Array, "..."], reference_logp: Float[Array, "..."]) -> Float[Array, "..."]:
    """Every token's KL weighs the same."""
    return jnp.ones_like(logp)


def critical(
    logp: Float[Array, "..."], reference_logp: Float[Array, "..."], *, power: float, vocabulary: int
) -> Float[Array, "..."]:
    """``max(0, 1 + log reference(a) / log vocabulary)^power``: less KL where the reference is unsure.

    "Ignore the KL Penalty! Boosting Exploration on Critical Tokens", arXiv 2502.06533: the weight is the reference's
    certainty to a power, its certainty the normalised negentropy ``1 - H / log vocabulary``. Here the sampled token's
    surprise stands for the entropy H, which it estimates without bias under the reference; a token that the reference
    finds less likely than chance has weight 0.
    """
    if power <= 0 or vocabulary < 2:
        raise InputError(f"kl weights critical: power {power} must be above 0 and vocabulary {vocabulary} 2 or more")
    return jnp.maximum(1.0 + reference_logp / math.log(vocabulary), 0.0) ** power


WEIGHTS = {"uniform": uniform, "critical": critical}
