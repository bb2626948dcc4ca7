"""Which blocks of a packed row can see each other: what blocked attention computes, and all that it computes.

Where a device has the queries of a part of a row only (``start`` says from which block on), query blocks are counted
from there and key blocks from the row's beginning.

Axes: B rows, T tokens of a row, n blocks of a row, b tokens of a block, P pairs of a query block and a key block: the
n (n + 1) / 2 of a key block no later, or with a ``start`` all.
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
    """What tells which tokens of blocks see each other; position and window are None where windows are not limited."""

    end: Int[Array, "n b"]
    position: Int[Array, "n b"] | None
    window: Int[Array, ""] | None
    start: Int[Array, ""] | None = None  # the first query block, None where queries are those of the whole row


Reach = tuple[Int[Array, "B T"], Int[Array, ""]]  # positions, and how many of them a token sees


class Part(NamedTuple):
    """The query blocks that a device has: ``count`` of them, from ``start`` on."""

    start: Int[Array, ""]
    count: int


def by_query(token_end: Int[Array, "B T"], block: int, reach: Reach | None = None, part: Part | None = None) -> Pairs:
    """The pairs sorted by query block, then by key block; of a part of the queries where one is given."""
    count = token_end.shape[1] // block
    if part is not None:
        query, key = np.divmod(np.arange(part.count * count), count)
        return _visible(token_end, block, query, key, reach, part.start)
    query, key = np.tril_indices(count)
    return _visible(token_end, block, query, key, reach)


def by_key(token_end: Int[Array, "B T"], block: int, part: Part | None = None) -> Pairs:
    """The pairs sorted by key block, then by query block; of a part of the queries where one is given."""
    count = token_end.shape[1] // block
    if part is not None:
        key, query = np.divmod(np.arange(count * part.count), part.count)
        return _visible(token_end, block, query, key, None, part.start)
    key, query = np.triu_indices(count)
    return _visible(token_end, block, query, key, None)


def keys(pairs: Pairs, count: int) -> Bool[Array, "B n"]:
    """Which of ``count`` key blocks are in a pair that counts."""
    return (pairs.key[:, :, None] == jnp.arange(count)[None, None]).any(axis=1)


def _visible(token_end, block: int, query: np.ndarray, key: np.ndarray, reach: Reach | None, start=0) -> Pairs:
    # In an earlier block every key index is below every query index, so some query sees some key exactly when the
    # first query does see the key that ends last. A token sees itself, so a block always sees itself.
    last = token_end.reshape(len(token_end), -1, block).max(axis=-1)
    at = jnp.asarray(query, jnp.int32) + start  # in the row
    seen = ((last[:, key] > (at * block)[None]) & (jnp.asarray(key) <= at)[None]) | (at == jnp.asarray(key))[None]
    if reach is not None:  # by the nearest pair of positions, which need not see each other: some left in see nothing
        position = jnp.asarray(reach[0]).reshape(len(token_end), -1, block)
        nearest = position.min(axis=-1)[:, at] - position.max(axis=-1)[:, key]
        seen &= (nearest < reach[1]) | (at == jnp.asarray(key))[None]
    count = seen.sum(axis=1, dtype=jnp.int32)
    order = jnp.argsort(~seen, axis=1, stable=True)
    order = jnp.take_along_axis(order, jnp.minimum(jnp.arange(len(key))[None], count[:, None] - 1), axis=1)
    return Pairs(jnp.asarray(query, jnp.int32)[order], jnp.asarray(key, jnp.int32)[order], count)


def mask(query: Int[Array, ""], key: Int[Array, ""], of: Mask) -> Bool[Array, "b b"]:
    """Entry (q, k): whether token q of block ``query`` sees token k of block ``key``."""
    end = of.end[key]
    within = jnp.arange(end.shape[0])
    query = query if of.start is None else query + of.start
    q, k = (query * end.shape[0] + within)[:, None], (key * end.shape[0] + within)[None, :]
    seen = (k <= q) & (q < end[None, :])
    if of.window is None:
        return seen
    return seen & (of.position[query][:, None] - of.position[key][None, :] < of.window)


def check(
    q: Float[Array, "B U H D"],
    k: Float[Array, "B T K D"],
    v: Float[Array, "B T K D"],
    token_end: Int[Array, "B T"],
    *,
    block: int,
    part: bool = False,
) -> None:
    """Refuses what blocked attention cannot honour; the queries are a ``part`` of the row's, or those of all of it.

    Raises:
      InputError: rows that are no multiple of the block, a dtype that is none of DTYPES or differs among q, k and v,
        query heads that cannot share key/value heads evenly, or shapes that do not belong together.
    """
    (rows, queries, heads, width), tokens = q.shape, k.shape[1]
    if queries % block and part:
        raise InputError(
            f"attention: the {queries} tokens of a row that a device of the sequence axis has are no multiple of its"
            f" blocks of {block}; make row_tokens one of that times config.mesh.sequence"
        )
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
    fit = k.shape == v.shape == (rows, tokens, k.shape[2], width) and heads % k.shape[2] == 0
    if not fit or (queries != tokens and not part):
        raise InputError(
            f"attention: queries {q.shape} [rows, tokens, heads, width] do not fit keys {k.shape} and values {v.shape};"
            f" rows, tokens and width must be equal, and the query heads a multiple of the key/value heads"
        )
    if token_end.shape != (rows, tokens) or not jnp.issubdtype(token_end.dtype, jnp.integer):
        raise InputError(
            f"attention: token_end is {token_end.dtype} {token_end.shape}, needs one integer for each of the"
            f" {rows} x {tokens} tokens"
        )
