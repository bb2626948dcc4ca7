"""The three attentions over forests behind one signature, on rows so short that a block is eight tokens."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rlsearch.models import attention, attention_blocked, attention_pallas
from rlsearch.tree.pack import pack
from tests.tree.random_forests import random_forest

BLOCK = 8
ROWS, TOKENS = 2, 48


def dense(q, k, v, token_end):
    return attention.masked_attention(q, k.swapaxes(1, 2), v.swapaxes(1, 2), attention.visible(token_end))


blocked = functools.partial(attention_blocked.attend, block=BLOCK)
pallas = functools.partial(attention_pallas.attend, block=BLOCK, interpret=True)
ALL = {"dense": dense, "blocked": blocked, "pallas": pallas}


def random_ends(seed: int) -> np.ndarray:
    """Ends of two packed rows, padding included; at most the first two rows of what a random forest fills."""
    return random_rows(seed)[0]


def random_rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Those ends, and the positions of the tokens."""
    forest = random_forest(seed, trees=6, depth=3, branching=3, longest=4)
    rows = pack(forest, width=TOKENS, targets=TOKENS, multiple=1).rows
    whole = np.tile(np.arange(1, TOKENS + 1, dtype=np.int32), (ROWS, 1))
    position = np.zeros_like(whole)
    whole[: len(rows.token_end)], position[: len(rows.position)] = rows.token_end[:ROWS], rows.position[:ROWS]
    return whole, position


def random_arrays(seed: int, *, heads: int, kv_heads: int, dtype: str) -> tuple[jax.Array, ...]:
    """Queries, keys, values and a cotangent for the output."""
    rng = np.random.default_rng(seed)
    sizes = (heads, kv_heads, kv_heads, heads)
    return tuple(jnp.asarray(rng.normal(size=(ROWS, TOKENS, size, 4)), dtype) for size in sizes)


@functools.partial(jax.jit, static_argnames="name")
def value_and_gradients(name: str, q, k, v, cotangent, token_end):
    """Output, and the gradients that ``cotangent`` of it gives for queries, keys and values."""
    out, backward = jax.vjp(lambda q, k, v: ALL[name](q, k, v, token_end), q, k, v)
    return out, *backward(cotangent)
