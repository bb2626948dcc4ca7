"""Rotary positions: what they must be, whatever the implementation."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.models import rope

SHAPE = (1, 1, 2, 8)
VECTORS = st.integers(0, 999).map(lambda seed: np.random.default_rng(seed).normal(size=(2, *SHAPE)).astype(np.float32))


def turn(x: np.ndarray, position: int) -> np.ndarray:
    return np.asarray(rope.rotate(x, np.array([[position]]), 100.0))


@given(VECTORS, st.integers(0, 500))
def test_against_complex_numbers(vectors, position):
    x = vectors[0].astype(np.complex128)
    expected = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * position * 100.0 ** (-np.arange(4) / 4))
    np.testing.assert_allclose(turn(vectors[0], position)[..., :4], expected.real, atol=2e-4)
    np.testing.assert_allclose(turn(vectors[0], position)[..., 4:], expected.imag, atol=2e-4)


@given(VECTORS)
def test_position_zero_is_the_identity(vectors):
    np.testing.assert_array_equal(turn(vectors[0], 0), vectors[0])


@given(VECTORS, st.integers(0, 500))
def test_lengths_are_kept(vectors, position):
    np.testing.assert_allclose(np.linalg.norm(turn(vectors[0], position)), np.linalg.norm(vectors[0]), rtol=1e-5)


@given(VECTORS, st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_scores_depend_on_the_distance_alone(vectors, query, key, shift):
    q, k = vectors
    near = (turn(q, query) * turn(k, key)).sum(axis=-1)
    far = (turn(q, query + shift) * turn(k, key + shift)).sum(axis=-1)
    np.testing.assert_allclose(near, far, atol=1e-3)


def test_angles_are_exact_in_bfloat16():
    """Position 300 does not exist in bfloat16, so that angles must not be computed in it."""
    x = jnp.ones((1, 1, 1, 8), jnp.bfloat16)
    found = rope.rotate(x, np.array([[301]]), 1e4)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        found.astype(jnp.float32), rope.rotate(x.astype(jnp.float32), np.array([[301]]), 1e4), atol=1e-2
    )
