"""KL estimators by their numbers, and what each does to the policy in the loss and in the reward."""

from __future__ import annotations

from dataclasses import replace
from math import log

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.losses import kl, policy
from tests.losses.test_policy import SECTION, targets


@pytest.mark.parametrize(("name", "value"), [("k1", -0.5), ("k2", 0.125), ("k3", 0.1487213)])
def test_numbers_at_half_a_nat(name, value):
    assert float(kl.estimate(name, jnp.float32(-1.0), jnp.float32(-0.5))) == pytest.approx(value, rel=1e-5)


@given(st.sampled_from(["k2", "k3"]), st.floats(-20, 0), st.floats(-20, 0))
def test_never_negative_and_zero_at_the_reference(name, logp, reference):
    assert float(kl.estimate(name, jnp.float32(logp), jnp.float32(reference))) >= 0
    assert float(kl.estimate(name, jnp.float32(logp), jnp.float32(logp))) == 0


def test_small_differences_keep_their_digits():
    """At d = 1e-4, exp(d) - 1 - d is 5e-9; without expm1 float32 has nothing left of it."""
    assert float(kl.estimate("k3", jnp.float32(-1e-4), jnp.float32(0.0))) == pytest.approx(5e-9, rel=0.02)


VOCABULARY = 5
LOGITS, REFERENCE = (jnp.asarray(np.random.default_rng(s).normal(size=VOCABULARY), jnp.float32) for s in (0, 1))
OTHER = jax.nn.log_softmax(REFERENCE)


def forward(logits):
    """KL(policy || reference)."""
    logp = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(logp) * (logp - OTHER))


def reverse(logits):
    """KL(reference || policy)."""
    return jnp.sum(jnp.exp(OTHER) * (OTHER - jax.nn.log_softmax(logits)))


def half_square(logits):
    """E[d^2] / 2 over the policy, its own sampling included."""
    logp = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(logp) * jnp.square(OTHER - logp)) / 2


def expected_gradient(name: str, place: str) -> np.ndarray:
    """Of the objective over tokens sampled from the policy: every token once, weighing what it is sampled with."""
    weights = np.exp(jax.nn.log_softmax(LOGITS))
    section = {**SECTION, "clip": {"kind": "none"}, "entropy": 0.0}
    section["kl"] = {"coefficient": 1.0, "estimator": name, "place": place, "weights": {"kind": "uniform"}}
    config = policy.read(ConfigDict(section))
    old = jax.nn.log_softmax(LOGITS)
    advantage = 0 * old if place == "loss" else -kl.estimate(name, old, OTHER)

    def loss(logits):
        made = targets(old_logp=old, reference_logp=OTHER, advantage=advantage, weight=weights)
        return policy.objective(config, replace(made, logp=jax.nn.log_softmax(logits)[None]), None)[0]

    return np.asarray(jax.grad(loss)(LOGITS))


@pytest.mark.parametrize(
    ("name", "place", "penalty"),
    [
        ("k1", "loss", lambda logits: 0.0 * logits.sum()),
        ("k2", "loss", forward),
        ("k3", "loss", reverse),
        ("k1", "reward", forward),
        ("k2", "reward", lambda logits: half_square(logits) - forward(logits)),
        ("k3", "reward", lambda logits: forward(logits) - reverse(logits)),
    ],
)
def test_what_each_estimator_moves_the_policy_along(name, place, penalty):
    """B080: every pair of estimator and place has an effect, and it is this one."""
    np.testing.assert_allclose(expected_gradient(name, place), jax.grad(penalty)(LOGITS), atol=2e-6)


def test_k1_and_k3_are_unbiased_and_k2_is_not():
    logp = jax.nn.log_softmax(LOGITS)
    mean = {name: float(jnp.sum(jnp.exp(logp) * kl.estimate(name, logp, OTHER))) for name in kl.ESTIMATORS}
    assert mean["k1"] == pytest.approx(float(forward(LOGITS)), rel=1e-5)
    assert mean["k3"] == pytest.approx(float(forward(LOGITS)), rel=1e-5)
    assert mean["k2"] == pytest.approx(float(half_square(LOGITS)), rel=1e-5)
    assert abs(mean["k2"] - mean["k1"]) > 0.01


def test_critical_tokens_by_hand():
    """A vocabulary of 16, power 2: a sure token weighs 1, one of 1/4 (1 - 1/2)^2, one of chance or less 0."""
    reference = jnp.log(jnp.array([1.0, 1 / 4, 1 / 16, 1 / 1000]))
    found = kl.critical(jnp.zeros(4), reference, power=2.0, vocabulary=16)
    np.testing.assert_allclose(found, [1.0, 0.25, 0.0, 0.0], atol=1e-6)


def test_the_weight_is_no_part_of_the_gradient():
    """Loss w (e^d - 1 - d) with w held: slope by logp w (1 - e^d), here w = 1 - log 2 / log 16 = 3/4, d = log 1/2."""
    section = {**SECTION, "clip": {"kind": "none"}, "entropy": 0.0}
    section["kl"] = {
        **SECTION["kl"],
        "coefficient": 1.0,
        "weights": {"kind": "critical", "power": 1.0, "vocabulary": 16},
    }
    config = policy.read(ConfigDict(section))

    def loss(logp):
        made = targets(old_logp=[0.0], reference_logp=[log(0.5)])
        return policy.objective(config, replace(made, logp=logp), None)[0]

    value, slope = jax.value_and_grad(loss)(jnp.zeros((1, 1)))
    assert float(value) == pytest.approx(0.75 * (0.5 - 1 - log(0.5)), rel=1e-5)
    assert slope[0, 0] == pytest.approx(0.75 * 0.5, rel=1e-5)
