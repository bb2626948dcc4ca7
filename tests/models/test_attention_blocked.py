"""Blocked attention, in XLA and as the interpreted TPU kernel, against the dense one."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rlsearch.errors import InputError
from rlsearch.models import attention, attention_blocked, attention_pallas, sharding
from rlsearch.models.layout import ALONE, Layout
from tests.models.attentions import ALL, BLOCK, ROWS, TOKENS, blocked, pallas, random_arrays, random_ends, random_rows
from tests.models.attentions import value_and_gradients as run

FAST = ["blocked", "pallas"]
every_attention = pytest.mark.parametrize("name", list(ALL))
every_fast_one = pytest.mark.parametrize("name", FAST)


@every_fast_one
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (2, 2), (3, 1)])
@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_values_and_gradients_are_those_of_the_dense_attention(name, heads, kv_heads, seed):
    arrays, end = random_arrays(seed, heads=heads, kv_heads=kv_heads, dtype="float32"), random_ends(seed)
    for got, expected in zip(run(name, *arrays, end), run("dense", *arrays, end), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_windows_caps_and_scales_are_those_of_the_dense_attention(seed, window):
    arrays = random_arrays(seed, heads=4, kv_heads=2, dtype="float32")
    for got, expected in zip(
        limited("blocked", *arrays, seed, window), limited("dense", *arrays, seed, window), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def limited(name, q, k, v, cotangent, seed, window):
    """Output and gradients with a window, a scale of 0.9 and scores capped at 1.5."""
    return _limited(name, q, k, v, cotangent, *random_rows(seed), jnp.int32(window))


@functools.partial(jax.jit, static_argnums=0)
def _limited(name, q, k, v, cotangent, end, position, window):
    how = {"position": position, "scale": 0.9, "cap": 1.5}
    if name == "dense":
        attend = functools.partial(attention.over_forest(end, implementation="dense", **how), window=window)
    else:
        attend = functools.partial(blocked, token_end=end, window=window, **how)
    out, backward = jax.vjp(lambda q, k, v: attend(q, k, v), q, k, v)
    return out, *backward(cotangent)


def test_blocks_beyond_the_window_are_not_read():
    """A causal row with NaN in its first block: those that start four or more positions behind it are clean."""
    arrays = [x.at[:, :BLOCK].set(jnp.nan) for x in random_arrays(0, heads=4, kv_heads=2, dtype="float32")]
    end, position = np.full((ROWS, TOKENS), TOKENS), np.tile(np.arange(TOKENS), (ROWS, 1))
    out = blocked(*arrays[:3], token_end=end, position=position, window=jnp.int32(4))
    clean = np.isfinite(np.asarray(out)).all(axis=(0, 2, 3))
    assert clean[2 * BLOCK :].all() and not clean[:BLOCK].any()


def test_the_kernel_refuses_what_it_does_not_know():
    q, k, v, _ = random_arrays(0, heads=4, kv_heads=2, dtype="float32")
    for limit, message in (
        ({"window": jnp.int32(4)}, "cannot honour a sliding window; set attention to 'blocked'"),
        ({"cap": 50.0}, "cannot honour a soft cap"),
        ({"scale": 0.4}, "multiplies scores by 0.5, .* cannot honour 0.4"),
    ):
        with pytest.raises(InputError, match=message):
            pallas(q, k, v, random_ends(0), **limit)


@every_fast_one
def test_large_scores_neither_overflow_nor_vanish(name):
    q, k, v, cotangent = random_arrays(0, heads=4, kv_heads=2, dtype="float32")
    arrays, end = (100 * q, 100 * k, v, cotangent), random_ends(0)
    for got, expected in zip(run(name, *arrays, end), run("dense", *arrays, end), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=2e-3)


@every_fast_one
def test_bfloat16_is_within_its_rounding_of_float32(name):
    arrays, end = random_arrays(0, heads=4, kv_heads=2, dtype="bfloat16"), random_ends(0)
    exact = run("dense", *(x.astype(jnp.float32) for x in arrays), end)
    for got, expected in zip(run(name, *arrays, end), exact, strict=True):
        assert got.dtype == jnp.bfloat16
        np.testing.assert_allclose(got.astype(jnp.float32), expected, rtol=0.03, atol=0.03)


@every_attention
@settings(max_examples=4)
@given(st.integers(0, 2**32 - 1))
@example(1)
def test_gradients_flow_to_what_is_seen_and_nowhere_else(name, seed):
    """Exactly zero for siblings, other trees, other rows, padding and the future; never for what is seen."""
    q, k, v, cotangent = random_arrays(seed, heads=4, kv_heads=2, dtype="float32")
    end = random_ends(seed)
    seen = np.asarray(attention.visible(end))
    for query in range(TOKENS):
        one = jnp.zeros_like(cotangent).at[0, query].set(cotangent[0, query])
        _, dq, dk, dv = (np.abs(np.asarray(x)).max(axis=(2, 3)) for x in run(name, q, k, v, one, end))
        assert not dq[1].any() and not dk[1].any() and not dv[1].any()
        assert np.flatnonzero(dv[0]).tolist() == np.flatnonzero(seen[0, query]).tolist()
        # A query that sees one key only gives it all its weight, whatever the score.
        alone = seen[0, query].sum() == 1
        assert set(np.flatnonzero(dq[0])) <= {query}
        assert set(np.flatnonzero(dk[0])) <= set(np.flatnonzero(seen[0, query]))
        assert alone or (dq[0, query] > 0 and (dk[0] > 0).sum() == seen[0, query].sum())


@every_attention
def test_outputs_do_not_change_by_a_bit_with_what_is_not_seen(name):
    q, k, v, cotangent = random_arrays(2, heads=4, kv_heads=2, dtype="float32")
    end = random_ends(2)
    seen = np.asarray(attention.visible(end))
    before = np.asarray(run(name, q, k, v, cotangent, end)[0])
    for token in range(0, TOKENS, 5):
        after = np.asarray(run(name, q, k.at[:, token].mul(-3.0), v.at[:, token].add(7.0), cotangent, end)[0])
        changed = (before != after).any(axis=(2, 3))
        assert (changed == seen[:, :, token]).all()


@every_fast_one
def test_blocks_with_nothing_to_see_are_not_read(name):
    """NaN in the middle one of three trees, which the blocks of the others would be poisoned by if they read it."""
    third = TOKENS // 3
    assert third % BLOCK == 0
    arrays = [x.at[:, third : 2 * third].set(jnp.nan) for x in random_arrays(0, heads=4, kv_heads=2, dtype="float32")]
    end = np.repeat(np.tile(np.array([1, 2, 3], np.int32) * third, (ROWS, 1)), third, axis=1)
    for x in run(name, *arrays, end):
        clean = np.isfinite(np.asarray(x)).all(axis=(0, 2, 3))
        assert clean.tolist() == [True] * third + [False] * third + [True] * third


def test_blocked_memory_grows_with_the_row_and_not_with_its_square():
    def temporary(tokens: int) -> int:
        shapes = [jax.ShapeDtypeStruct((1, tokens, heads, 8), jnp.float32) for heads in (2, 1, 1)]
        ends = jax.ShapeDtypeStruct((1, tokens), jnp.int32)
        attend = functools.partial(attention_blocked.attend, block=64)
        step = jax.jit(jax.grad(lambda q, k, v, end: attend(q, k, v, end).sum(), argnums=(0, 1, 2)))
        return step.lower(*shapes, ends).compile().memory_analysis().temp_size_in_bytes

    assert temporary(4096) < 2.5 * temporary(2048)


def test_the_kernel_on_a_simulated_memory():
    """Blocks fetched and written back as on a TPU, where what was never written is NaN."""
    arrays, end = random_arrays(3, heads=4, kv_heads=2, dtype="float32"), random_ends(3)
    simulated = functools.partial(
        attention_pallas.attend, block=BLOCK, interpret=pltpu.InterpretParams(uninitialized_memory="nan")
    )
    out, backward = jax.vjp(lambda q, k, v: simulated(q, k, v, end), *arrays[:3])
    for got, expected in zip((out, *backward(arrays[3])), run("dense", *arrays, end), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_rows_and_heads_may_be_sharded():
    """Blocked as ``jit`` partitions it, the kernel under ``shard_map``."""
    arrays, end = random_arrays(4, heads=4, kv_heads=2, dtype="float32"), random_ends(4)
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    split, rows = P("data", None, "model", None), P("data", None)
    kernel = jax.shard_map(pallas, mesh=mesh, in_specs=(split, split, split, rows), out_specs=split, check_vma=False)
    placed = [jax.device_put(x, NamedSharding(mesh, split)) for x in arrays]
    ends = jax.device_put(end, NamedSharding(mesh, rows))
    expected = run("dense", *arrays, end)
    for attend in (blocked, kernel):

        @jax.jit
        def both(q, k, v, cotangent, ends, attend=attend):
            out, backward = jax.vjp(lambda q, k, v: attend(q, k, v, ends), q, k, v)
            return out, *backward(cotangent)

        for got, wanted in zip(both(*placed, ends), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "tokens", "heads", "width", "block", "message"),
    [
        (1, 256, 2, 96, 128, "heads of width 64, 128, 256 .* got width 96"),
        (1, 256, 2, 128, 64, "multiple of 128, got width 128 and blocks of 64"),
        (1, 256, 64, 128, 256, "64 query heads of width 128 share a key/value head, .* at most 32"),
        (16, 32768, 1, 128, 256, "16 rows of 32768 tokens a device are 128 blocks each"),
    ],
)
def test_the_kernel_refuses_what_a_tpu_core_cannot_hold(rows, tokens, heads, width, block, message):
    q = jax.ShapeDtypeStruct((rows, tokens, heads, width), jnp.float32)
    k = jax.ShapeDtypeStruct((rows, tokens, 1, width), jnp.float32)
    end = jax.ShapeDtypeStruct((rows, tokens), jnp.int32)
    with pytest.raises(InputError, match=message):
        jax.eval_shape(functools.partial(attention_pallas.attend, block=block, interpret=False), q, k, k, end)


@pytest.mark.parametrize("name", list(ALL))
@pytest.mark.parametrize("axes", [(2, 1, 1, 2), (1, 2, 2, 2), (1, 1, 3, 2)])
def test_on_a_mesh_each_device_attends_its_own_rows_heads_and_queries(name, axes, monkeypatch):
    """As a step calls it; blocks are short and the kernel interpreted."""
    arrays, (end, position) = random_arrays(5, heads=4, kv_heads=2, dtype="float32"), random_rows(5)
    mesh = sharding.make_mesh(sharding.MeshConfig(*axes), jax.devices()[: math.prod(axes)])
    monkeypatch.setattr(attention, "_blocked", blocked)
    monkeypatch.setattr(attention, "_pallas", lambda *of, position, **limits: pallas(*of, **limits))

    @jax.jit
    def both(q, k, v, cotangent):
        attend = attention.over_forest(end, implementation=name, position=position, layout=Layout(mesh))
        out, backward = jax.vjp(attend, q, k, v)
        return out, *backward(cotangent)

    for got, wanted in zip(both(*arrays), run("dense", *arrays, end), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["dense", "blocked"])
def test_windows_on_a_mesh_are_those_of_one_device(name, monkeypatch):
    arrays, (end, position) = random_arrays(6, heads=4, kv_heads=2, dtype="float32"), random_rows(6)
    mesh = sharding.make_mesh(sharding.MeshConfig(1, 1, 3, 2), jax.devices()[:6])
    monkeypatch.setattr(attention, "_blocked", blocked)

    @functools.partial(jax.jit, static_argnames="layout")
    def both(q, k, v, cotangent, layout):
        how = {"implementation": name, "position": position, "layout": layout}
        attend = functools.partial(attention.over_forest(end, **how), window=jnp.int32(3))
        out, backward = jax.vjp(lambda q, k, v: attend(q, k, v), q, k, v)
        return out, *backward(cotangent)

    for got, wanted in zip(both(*arrays, Layout(mesh)), both(*arrays, ALONE), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_part_of_a_row_that_is_no_multiple_of_the_block_is_refused():
    q, k, v, _ = random_arrays(0, heads=4, kv_heads=2, dtype="float32")
    with pytest.raises(InputError, match="the 12 tokens of a row that a device of the sequence axis has"):
        blocked(q[:, :12], k, v, random_ends(0), start=jnp.int32(12))
