"""The pairs of blocks against the whole mask, and what blocked attention refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.models import attention, block_pairs
from tests.models.attentions import BLOCK, TOKENS, random_ends

by_query = jax.jit(block_pairs.by_query, static_argnums=1)
by_key = jax.jit(block_pairs.by_key, static_argnums=1)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_pairs_are_the_blocks_of_the_mask_that_hold_something(seed):
    end = random_ends(seed)
    blocks = np.asarray(attention.visible(end)).reshape(len(end), TOKENS // BLOCK, BLOCK, -1, BLOCK)
    for row, seen in enumerate(blocks.any(axis=(2, 4))):
        expected = np.argwhere(seen).tolist()
        assert listed(by_query(end, BLOCK), row) == expected
        assert listed(by_key(end, BLOCK), row) == sorted(expected, key=lambda pair: pair[::-1])


def listed(pairs: block_pairs.Pairs, row: int) -> list[list[int]]:
    """The pairs that count; those behind them repeat the last, so that nothing new is fetched for them."""
    both = np.stack([np.asarray(pairs.query)[row], np.asarray(pairs.key)[row]], axis=1).tolist()
    count = int(pairs.count[row])
    assert both[count:] == [both[count - 1]] * (len(both) - count)
    return both[:count]


def test_the_mask_of_a_pair_is_its_part_of_the_whole():
    end = random_ends(0)
    whole = np.asarray(attention.visible(end))[0]
    for query, key in np.ndindex(TOKENS // BLOCK, TOKENS // BLOCK):
        q, k = slice(query * BLOCK, (query + 1) * BLOCK), slice(key * BLOCK, (key + 1) * BLOCK)
        of = block_pairs.Mask(jnp.asarray(end[0]).reshape(-1, BLOCK), None, None)
        assert (np.asarray(block_pairs.mask(query, key, of)) == whole[q, k]).all()


def test_a_causal_row_leaves_nothing_out_and_a_row_of_padding_everything_but_the_diagonal():
    causal, padding = np.full(TOKENS, TOKENS), np.arange(TOKENS) + 1
    blocks = TOKENS // BLOCK
    counts = block_pairs.by_query(np.stack([causal, padding]), BLOCK).count
    assert counts.tolist() == [blocks * (blocks + 1) // 2, blocks]


def arrays(tokens=16, heads=4, kv_heads=2, width=4, dtype="float32"):
    q = jnp.zeros((2, tokens, heads, width), dtype)
    k = jnp.zeros((2, tokens, kv_heads, width), dtype)
    return {"q": q, "k": k, "v": k, "token_end": jnp.full((2, tokens), tokens)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (arrays(tokens=20), r"rows of 20 tokens .* blocks of 8; make row_tokens one \(the next is 24\)"),
        (arrays(dtype="float16"), "float16, float16 and float16; all three must be one of float32, bfloat16"),
        ({"v": jnp.zeros((2, 16, 2, 4), "bfloat16")}, "float32, float32 and bfloat16"),
        (arrays(heads=3), r"queries \(2, 16, 3, 4\) .* multiple of the key/value heads"),
        ({"v": jnp.zeros((2, 16, 1, 4))}, r"values \(2, 16, 1, 4\)"),
        ({"q": jnp.zeros((2, 16, 4, 8))}, r"queries \(2, 16, 4, 8\)"),
        ({"token_end": jnp.full((1, 16), 16)}, r"token_end is int32 \(1, 16\), .* 2 x 16 tokens"),
        ({"token_end": jnp.full((2, 16), 16.0)}, "token_end is float32"),
    ],
)
def test_what_cannot_be_honoured_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        block_pairs.check(**{**arrays(), **changes}, block=8)
