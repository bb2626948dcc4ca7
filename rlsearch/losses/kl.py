"""Estimators of KL(policy || reference) from samples of the policy (Schulman, "Approximating KL Divergence", 2020).

With ``d = log reference - log policy`` at the sampled token: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d. As a loss
term, k1 has an expected gradient of zero and is refused; k2's is that of the KL on policy; k3's is that of the reverse.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.errors import InputError, nearest

ESTIMATORS = {
    "k2": lambda d: 0.5 * jnp.square(d),
    "k3": lambda d: jnp.expm1(d) - d,
}


def check(name: str) -> None:
    """Refuses an estimator that is unknown, or useless as a loss."""
    if name == "k1":
        raise InputError(
            "config.loss.kl_estimator 'k1': its gradient as a loss is zero in expectation; use 'k2' or 'k3'"
        )
    if name not in ESTIMATORS:
        raise InputError(f"config.loss.kl_estimator {name!r}: unknown{nearest(name, ESTIMATORS)}")


def estimate(name: str, logp: Float[Array, "..."], reference_logp: Float[Array, "..."]) -> Float[Array, "..."]:
    """The estimate at every token, never negative."""
    return ESTIMATORS[name](reference_logp - logp)
