"""Attention over packed forests block by block: memory grows with T, and blocks with nothing to see cost nothing.

A loop over the visible pairs of blocks, in plain XLA, with the softmax kept running (Milakov and Gimelshein, 2018) and
the log-sum-exp saved for the backward pass (FlashAttention-2: Dao, 2023, arXiv:2307.08691, algorithms 1 and 2).

Axes: B rows, T tokens of a row, U queries of a row (T, or those of a part of it), n blocks of a row, b tokens of a
block, K key/value heads, G query heads of each, R = G b queries of a block, D head width.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlsearch.models import block_pairs

BLOCK = 128  # tokens
LOW = jnp.finfo(jnp.float32).min
ROWS = "attention_rows"  # names the axis of rows for the one number that they share: how often the loop turns


def attend(
    q: Float[Array, "B U H D"],
    k: Float[Array, "B T K D"],
    v: Float[Array, "B T K D"],
    token_end: Int[Array, "B T"],
    *,
    block: int,
    position: Int[Array, "B T"] | None = None,
    window: Int[Array, ""] | None = None,
    scale: float | None = None,
    cap: float | None = None,
    start: Int[Array, ""] | None = None,
) -> Float[Array, "B U H D"]:
    """Query q sees key k exactly when ``k <= q < token_end[k]``; scores and softmax in float32.

    With a ``window``, ``position[q] - position[k]`` must be less than it too. Scores are multiplied by ``scale``, 1 /
    sqrt(D) where None, and with a ``cap`` softly capped: ``cap * tanh(scores / cap)``.

    Every row computes its own visible pairs of blocks, and all rows turn as often as the fullest one. Query head h
    reads key/value head ``h // G``. ``token_end[k]`` must exceed k: a query that saw no key would be NaN. Works under
    ``jit`` with rows and heads sharded. With a ``start``, the first index of a block, queries are those of the U tokens
    from there on.

    Raises:
      InputError: rows that are no multiple of ``block``, or what else ``block_pairs.check`` refuses.
    """
    block_pairs.check(q, k, v, token_end, block=block, part=start is not None)
    form = _Form(block, q.shape[-1] ** -0.5 if scale is None else scale, cap)
    reach = None if window is None else (position, window)
    return _attend(q, k, v, token_end, reach, None if start is None else start // block, form)


class _Form(NamedTuple):
    """What is known when the loop is compiled."""

    block: int
    scale: float
    cap: float | None


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def _attend(q, k, v, token_end, reach, start, form):
    return _forward(q, k, v, token_end, reach, start, form)[0]


def _forward(q, k, v, token_end, reach, start, form):
    part = None if start is None else block_pairs.Part(start, q.shape[1] // form.block)
    pairs = block_pairs.by_query(token_end, form.block, reach, part)
    mask = _mask(token_end, reach, start, form.block)
    q, k, v = (_queries(x, k.shape[2], form.block) for x in (q, k, v))
    row = functools.partial(_row_forward, form=form)
    out, lse = jax.vmap(row, axis_name=ROWS)(q, k, v, mask, pairs)
    return _tokens(out, form.block), (q, k, v, mask, pairs, out, lse)


def _backward(form, saved, cotangent):
    q, k, v, mask, pairs, out, lse = saved
    cotangent = _queries(cotangent, k.shape[2], form.block)
    delta = jnp.einsum("...d,...d->...", cotangent, out, preferred_element_type=jnp.float32)
    row = functools.partial(_row_backward, form=form)
    dq, dk, dv = jax.vmap(row, axis_name=ROWS)(q, k, v, mask, pairs, cotangent, lse, delta)
    return *(_tokens(x, form.block).astype(q.dtype) for x in (dq, dk, dv)), None, None, None


_attend.defvjp(_forward, _backward)


def _row_forward(q: Float[Array, "n K R D"], k: Float[Array, "n K b D"], v, mask: block_pairs.Mask, pairs, *, form):
    """Output and log-sum-exp [n, K, R] of one row."""

    def turn(step, carry):
        i, j = pairs.query[step], pairs.key[step]
        scores, seen = _scores(q, k, mask, i, j, step < pairs.count, form)
        highest, total, out = (x[i] for x in carry)
        new = jnp.maximum(highest, jnp.where(seen, scores, LOW).max(axis=-1))
        weights = jnp.where(seen, jnp.exp(scores - new[..., None]), 0.0)
        fade = jnp.exp(highest - new)
        read = jnp.einsum("krc,kcd->krd", weights.astype(v.dtype), v[j], preferred_element_type=jnp.float32)
        moved = (new, fade * total + weights.sum(axis=-1), fade[..., None] * out + read)
        return tuple(_put(x, i, y) for x, y in zip(carry, moved, strict=True))

    start = (jnp.full(q.shape[:3], LOW), jnp.zeros(q.shape[:3], jnp.float32), jnp.zeros(q.shape, jnp.float32))
    highest, total, out = jax.lax.fori_loop(0, jax.lax.pmax(pairs.count, ROWS), turn, start)
    return (out / total[..., None]).astype(q.dtype), highest + jnp.log(total)


def _row_backward(q, k, v, mask, pairs, cotangent, lse: Float[Array, "n K R"], delta: Float[Array, "n K R"], *, form):
    """Gradients of one row by q, k and v, in float32; ``delta`` is the cotangent times the output, summed over D."""

    def turn(step, carry):
        i, j = pairs.query[step], pairs.key[step]
        scores, seen = _scores(q, k, mask, i, j, step < pairs.count, form)
        weights = jnp.where(seen, jnp.exp(scores - lse[i][..., None]), 0.0)
        moved = jnp.einsum("krd,kcd->krc", cotangent[i], v[j], preferred_element_type=jnp.float32)
        moved = weights * (moved - delta[i][..., None]) * form.scale
        if form.cap is not None:  # the slope of the cap where the score lies
            moved = moved * (1 - jnp.square(jnp.where(seen, scores, 0.0) / form.cap))
        moved = moved.astype(q.dtype)
        dq = jnp.einsum("krc,kcd->krd", moved, k[j], preferred_element_type=jnp.float32)
        dk = jnp.einsum("krc,krd->kcd", moved, q[i], preferred_element_type=jnp.float32)
        dv = jnp.einsum("krc,krd->kcd", weights.astype(q.dtype), cotangent[i], preferred_element_type=jnp.float32)
        return tuple(_put(x, at, x[at] + y) for x, at, y in zip(carry, (i, j, j), (dq, dk, dv), strict=True))

    start = tuple(jnp.zeros(x.shape, jnp.float32) for x in (q, k, v))
    return jax.lax.fori_loop(0, jax.lax.pmax(pairs.count, ROWS), turn, start)


def _scores(q, k, mask, i, j, used, form):
    """Scores [K, R, b] of a pair of blocks and which of them count; none do where the row is not ``used`` any more."""
    scores = jnp.einsum("krd,kcd->krc", q[i], k[j], preferred_element_type=jnp.float32) * form.scale
    scores = scores if form.cap is None else form.cap * jnp.tanh(scores / form.cap)
    seen = block_pairs.mask(i, j, mask) & used
    groups = scores.shape[1] // len(seen)
    return scores, jnp.broadcast_to(jnp.tile(seen, (groups, 1))[None], scores.shape)


def _put(x, index, part):
    return jax.lax.dynamic_update_index_in_dim(x, part, index, axis=0)


def _mask(token_end, reach, start, block: int) -> block_pairs.Mask:
    rows = len(token_end)
    end = token_end.reshape(rows, -1, block)
    start = None if start is None else jnp.broadcast_to(start, (rows,))
    if reach is None:
        return block_pairs.Mask(end, None, None, start)
    position, window = reach
    return block_pairs.Mask(end, position.reshape(end.shape), jnp.broadcast_to(window, (rows,)), start)


def _queries(x: Float[Array, "B T H D"], kv_heads: int, block: int) -> Float[Array, "B n K R D"]:
    rows, tokens, heads, width = x.shape
    x = x.reshape(rows, tokens // block, block, kv_heads, heads // kv_heads, width)
    return x.transpose(0, 1, 3, 4, 2, 5).reshape(rows, tokens // block, kv_heads, -1, width)


def _tokens(x: Float[Array, "B n K R D"], block: int) -> Float[Array, "B T H D"]:
    rows, blocks, kv_heads, _, width = x.shape
    x = x.reshape(rows, blocks, kv_heads, -1, block, width).transpose(0, 1, 4, 2, 3, 5)
    return x.reshape(rows, blocks * block, -1, width)
