"""Which blocks of a packed row can see each other: what blocked attention computes, and all that it computes.

Axes: B rows, T tokens of a row, n blocks of a row, P = n (n + 1) / 2 pairs of a query block and a key block no later.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from rlsearch.errors import InputError

DTYPES = ("float32", "bfloat16")


class Pairs(NamedTuple):
    """Pairs of blocks with something to see, first the ``count`` that count, then the last of those repeated."""

    query: Int[Array, "B P"]
    key: Int[Array, "B P"]
    count: Int[Array, "B"]


class Mask(NamedTuple):
    """What tells which tokens of blocks see each other; the last two are None where windows are not limited."""

    end: Int[Array, "n b"]
    position: Int[Array, "n b"] | None
    window: Int[Array, ""] | None


Reach = tuple[Int[Array, "B T"], Int[Array, ""]]  # positions, and how many of them a token sees


def by_query(token_end: Int[Array, "B T"], block: int, reach: Reach | None = None) -> Pairs:
    """The pairs sorted by query block, then by key block."""
    query, key = np.tril_indices(token_end.shape[1] // block)
    return _visible(token_end, block, query, key, reach)


def by_key(token_end: Int[Array, "B T"], block: int) -> Pairs:
    """The pairs sorted by key block, then by query block."""
    key, query = np.triu_indices(token_end.shape[1] // block)
    return _visible(token_end, block, query, key, None)


def _visible(token_end, block: int, query: np.ndarray, key: np.ndarray, reach: Reach | None) -> Pairs:
    # In an earlier block every key index is below every query index, so some query sees some key exactly when the
    # first query does see the key that ends last. A token sees itself, so a block always sees itself.
    last = token_end.reshape(len(token_end), -1, block).max(axis=-1)
    seen = (last[:, key] > jnp.asarray(query * block)[None]) | jnp.asarray(query == key)[None]
    if (
        reach is not None
    ):  # by the nearest pair of positions, which need not see each other: some pairs left in see nothing
        position = reach[0].reshape(len(token_end), -1, block)
        nearest = position.min(axis=-1)[:, query] - position.max(axis=-1)[:, key]
        seen &= (nearest < reach[1]) | jnp.asarray(query == key)[None]
    count = seen.sum(axis=1, dtype=jnp.int32)
    order = jnp.argsort(~seen, axis=1, stable=True)
    order = jnp.take_along_axis(order, jnp.minimum(jnp.arange(len(key))[None], count[:, None] - 1), axis=1)
    return Pairs(jnp.asarray(query, jnp.int32)[order], jnp.asarray(key, jnp.int32)[order], count)


def mask(query: Int[Array, ""], key: Int[Array, ""], of: Mask) -> Bool[Array, "b b"]:
    """Entry (q, k): whether token q of block ``query`` sees token k of block ``key``."""
    end = of.end[key]
    within = jnp.arange(end.shape[0])
    q, k = (query * end.shape[0] + within)[:, None], (key * end.shape[0] + within)[None, :]
    seen = (k <= q) & (q < end[None, :])
    if of.window is None:
        return seen
    return seen & (of.position[query][:, None] - of.position[key][None, :] < of.window)


def check(
    q: Float[Array, "B T H D"],
    k: Float[Array, "B T K D"],
    v: Float[Array, "B T K D"],
    token_end: Int[Array, "B T"],
    *,
    block: int,
) -> None:
    """Refuses what blocked attention cannot honour.

    Raises:
      InputError: rows that are no multiple of the block, a dtype that is none of DTYPES or differs among q, k and v,
        query heads that cannot share key/value heads evenly, or shapes that do not belong together.
    """
    rows, tokens, heads, width = q.shape
    if tokens % block:
        raise InputError(
            f"attention: rows of {tokens} tokens are no multiple of its blocks of {block}; make row_tokens one"
            f" (the next is {-(-tokens // block) * block}), or use the dense attention, which takes any length"
        )
    if str(q.dtype) not in DTYPES or not q.dtype == k.dtype == v.dtype:
        raise InputError(
            f"attention: queries, keys and values are {q.dtype}, {k.dtype} and {v.dtype}; all three must be one of"
            f" {', '.join(DTYPES)}"
        )
    if k.shape != v.shape or k.shape != (rows, tokens, k.shape[2], width) or heads % k.shape[2]:
        raise InputError(
            f"attention: queries {q.shape} [rows, tokens, heads, width] do not fit keys {k.shape} and values {v.shape};"
            f" rows, tokens and width must be equal, and the query heads a multiple of the key/value heads"
        )
    if token_end.shape != (rows, tokens) or not jnp.issubdtype(token_end.dtype, jnp.integer):
        raise InputError(
            f"attention: token_end is {token_end.dtype} {token_end.shape}, needs one integer for each of the"
            f" {rows} x {tokens} tokens"
        )
