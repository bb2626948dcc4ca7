"""Log-probabilities and entropy of chosen tokens."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.losses import logprob


def score(logits: list[float], token: int, temperature: float) -> tuple[float, float]:
    logp, entropy = logprob.score(jnp.array([[logits]]), jnp.array([[token]]), temperature=temperature)
    return logp.item(), entropy.item()


def test_the_temperature_is_applied():
    """B065: T = .6 on logits 0, 1, 2; the raw logits would give -.408."""
    assert score([0.0, 1.0, 2.0], 2, 0.6)[0] == pytest.approx(-0.203, abs=5e-4)
    assert score([0.0, 1.0, 2.0], 2, 1.0)[0] == pytest.approx(-0.408, abs=5e-4)


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=9), st.floats(0.3, 2.0))
def test_against_double_precision(logits, temperature):
    scaled = np.array(logits) / temperature
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    logp, entropy = score(logits, len(logits) - 1, temperature)
    expected = (scaled - scaled.max())[-1] - np.log(np.exp(scaled - scaled.max()).sum())
    assert logp == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert entropy == pytest.approx(-(p * np.log(np.maximum(p, 1e-300))).sum(), rel=1e-4, abs=1e-4)


def test_entropy_of_equal_logits():
    assert score([3.0] * 8, 0, 0.7)[1] == pytest.approx(np.log(8), rel=1e-5)
