"""KL estimators by their numbers and their expectation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.losses import kl


@pytest.mark.parametrize(("name", "value"), [("k2", 0.125), ("k3", 0.1487213)])
def test_numbers_at_half_a_nat(name, value):
    assert float(kl.estimate(name, jnp.float32(-1.0), jnp.float32(-0.5))) == pytest.approx(value, rel=1e-5)


@given(st.sampled_from(["k2", "k3"]), st.floats(-20, 0), st.floats(-20, 0))
def test_never_negative_and_zero_at_the_reference(name, logp, reference):
    assert float(kl.estimate(name, jnp.float32(logp), jnp.float32(reference))) >= 0
    assert float(kl.estimate(name, jnp.float32(logp), jnp.float32(logp))) == 0


def test_small_differences_keep_their_digits():
    """At d = 1e-4, exp(d) - 1 - d is 5e-9; without expm1 float32 has nothing left of it."""
    assert float(kl.estimate("k3", jnp.float32(-1e-4), jnp.float32(0.0))) == pytest.approx(5e-9, rel=0.02)


def test_expectations_and_gradients_over_a_whole_vocabulary():
    """k3 is unbiased; over samples of the policy k2 has the gradient of KL(policy || reference), k3 of the reverse."""
    logits, reference = (jnp.asarray(np.random.default_rng(s).normal(size=8), jnp.float32) for s in (0, 1))
    other = jax.nn.log_softmax(reference)
    logp = jax.nn.log_softmax(logits)
    forward = jnp.sum(jnp.exp(logp) * (logp - other))
    assert float(jnp.sum(jnp.exp(logp) * kl.estimate("k3", logp, other))) == pytest.approx(float(forward), rel=1e-5)

    def sampled(logits, name):
        return jnp.sum(jnp.exp(logp) * kl.estimate(name, jax.nn.log_softmax(logits), other))

    def divergence(logits):
        now = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(now) * (now - other))

    def reverse(logits):
        return jnp.sum(jnp.exp(other) * (other - jax.nn.log_softmax(logits)))

    np.testing.assert_allclose(jax.grad(sampled)(logits, "k2"), jax.grad(divergence)(logits), atol=1e-5)
    np.testing.assert_allclose(jax.grad(sampled)(logits, "k3"), jax.grad(reverse)(logits), atol=1e-5)
