"""Rotary positions: what they must be, whatever the implementation."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.models import rope
from rlsearch.models.architecture import RopeScaling

SHAPE = (1, 1, 2, 8)
VECTORS = st.integers(0, 999).map(lambda seed: np.random.default_rng(seed).normal(size=(2, *SHAPE)).astype(np.float32))


def turn(x: np.ndarray, position: int) -> np.ndarray:
    return np.asarray(rope.rotate(x, np.array([[position]]), rope.frequencies(8, 100.0)))


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
    found = rope.rotate(x, np.array([[301]]), rope.frequencies(8, 1e4))
    assert found.dtype == jnp.bfloat16
    exact = rope.rotate(x.astype(jnp.float32), np.array([[301]]), rope.frequencies(8, 1e4))
    np.testing.assert_allclose(found.astype(jnp.float32), exact, atol=1e-2)


def test_llama_3_scaling_by_hand():
    """Four planes of theta 1e4 turn every 2 pi, 20 pi, 200 pi and 2,000 pi tokens; 1,000 positions, low 1, high 4.

    In 1,000 positions they turn 159.2, 15.9, 1.59 and 0.159 times. More than 4 turns are kept, fewer than 1 are slowed
    by the factor 8, and 1.59 lies (1.59155 - 1) / 3 = 0.197183 of the way: 0.01 (0.197183 + 0.802817 / 8).
    """
    scaling = RopeScaling("llama3", factor=8.0, low=1.0, high=4.0, original_positions=1000)
    found = rope.frequencies(8, 1e4, scaling)
    np.testing.assert_allclose(found, [1.0, 0.1, 0.00297535, 0.001 / 8], rtol=1e-5)


def test_linear_scaling_slows_every_plane():
    scaling = RopeScaling("linear", factor=4.0, low=None, high=None, original_positions=None)
    np.testing.assert_allclose(rope.frequencies(8, 1e4, scaling), rope.frequencies(8, 1e4) / 4, rtol=1e-6)


def test_yarn_by_hand():
    """Four planes of theta 1e4 again, 1,000 positions, but 20 turns and 1 as ends.

    A plane of index i turns 159.155 / 10 ** i times: 20 times at i = log10(159.155 / 20) = 0.9008, and once at 2.2018.
    Between the whole indices 0 and 3 a third of the way is gone with each: of plane 1 two thirds are kept, and of plane
    2 one third, the rest slowed by the factor 8.
    """
    scaling = RopeScaling("yarn", factor=8.0, low=1.0, high=20.0, original_positions=1000)
    found = rope.frequencies(8, 1e4, scaling)
    expected = [1.0, 0.1 * (2 / 3 + 1 / 24), 0.01 * (1 / 3 + 2 / 24), 0.001 / 8]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert rope.stretch(scaling) == pytest.approx(1 + 0.1 * np.log(8))
    assert rope.stretch(None) == rope.stretch(RopeScaling("llama3", 8.0, 1.0, 4.0, 1000)) == 1.0
