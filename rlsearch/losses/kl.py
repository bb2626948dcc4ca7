"""Estimators of KL(policy || reference) from samples of the policy (Schulman, "Approximating KL Divergence", 2020).

With ``d = log reference - log policy`` at the sampled token: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d. k1 and k3 are
unbiased for the value, k3 never negative and of lower variance.

Where the estimate stands decides what it moves, with tokens sampled from the policy:

- In the loss (``place`` "loss") it is differentiated, and what counts is the expected gradient of the estimate itself.
  That of k1 is zero whatever the policies, so it only adds noise; that of k2 is exactly the gradient of
  KL(policy || reference); that of k3 is the gradient of KL(reference || policy).
- In the reward (``place`` "reward") it is a number, taken before the update, and the policy gradient works on it. k1
  gives exactly the gradient of KL(policy || reference). k2 gives that of E[d^2] / 2 - KL(policy || reference), which
  near the reference is of third order in the difference, so it hardly pulls; k3 that of KL(policy || reference) -
  KL(reference || policy), of the same order.

So k2 (or k3) in the loss and k1 in the reward penalise the divergence that they estimate. ``tests/losses/test_kl.py``
proves each line on whole vocabularies.
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
