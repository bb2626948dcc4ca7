"""Groups by equal keys, against a dictionary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.credit import algebra

SIZE = 48
partition = jax.jit(algebra.partition)


def firsts(*keys: np.ndarray) -> list[int]:
    """Index of the first entry with the same keys; NaN equals nothing, and -0 is 0."""
    seen, found = {}, []
    for row, entry in enumerate(zip(*(key.tolist() for key in keys), strict=True)):
        found.append(seen.setdefault(entry, row) if all(x == x for x in entry) else row)
    return found


@given(st.integers(0, 999), st.integers(1, 60))
def test_entries_with_equal_keys_have_the_index_of_the_first(seed, kinds):
    """Of few kinds and of as many as there are entries, so that buckets are shared too."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(-kinds, kinds, size=SIZE).astype(np.int32)
    number = rng.choice(np.array([0.0, -0.0, np.nan, 0.1, -1.0, 1e-30], np.float32), size=SIZE)
    assert np.asarray(partition(whole, number)).tolist() == firsts(whole, number)
    assert np.asarray(partition(number)).tolist() == firsts(number)


@pytest.mark.parametrize("offset", [0, 2**30, -(2**31)])
def test_many_distinct_keys_all_stand_alone(offset):
    """Almost all share a bucket with others in some round."""
    keys = jnp.arange(5000, dtype=jnp.int32) + jnp.int32(offset)
    assert np.asarray(jax.jit(algebra.partition)(keys)).tolist() == list(range(5000))
