"""Attention over packed forests as a flash kernel for TPUs, forward and backward.

FlashAttention-2 (Dao, 2023, arXiv:2307.08691, algorithms 1 and 2) whose innermost grid axis is the list of block pairs
that see each other, prefetched as scalars: pairs that do not are neither computed nor fetched. Scores are held
transposed, keys along sublanes and queries along lanes, so that what is one number a query (maximum, sum, log-sum-exp)
fills whole registers. All query heads that share a key/value head are one operand.

Axes: B rows, T tokens of a row, U queries of a row (T, or those of a part of it), P pairs, b tokens of a block, K
key/value heads, G query heads of each, R = G b, D head width.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float, Int

from rlsearch.errors import InputError
from rlsearch.models import block_pairs

BLOCK = 256  # tokens
LANES, WIDTHS = 128, (64, 128, 256)
NUMBERS = 1 << 20  # of the queries of a block and a key/value head; more do not fit the fast memory beside their scores
SCALARS = 1_000_000  # bytes of prefetched pairs; a core has 1 MiB for scalars
VMEM = 48 << 20  # bytes; what NUMBERS of float32 need, above the compiler's own limit of 16 MiB
LOW = float(jnp.finfo(jnp.float32).min)
SCORES, READ, SPREAD = ((1,), (1,)), ((0,), (0,)), ((1,), (0,))  # contracted axes of the kernels' matmuls


def attend(
    q: Float[Array, "B U H D"],
    k: Float[Array, "B T K D"],
    v: Float[Array, "B T K D"],
    token_end: Int[Array, "B T"],
    *,
    block: int,
    interpret: bool,
    window: Int[Array, ""] | None = None,
    scale: float | None = None,
    cap: float | None = None,
    start: Int[Array, ""] | None = None,
) -> Float[Array, "B U H D"]:
    """Query q sees key k exactly when ``k <= q < token_end[k]``; scores and softmax in float32.

    Query head h reads key/value head ``h // G``. ``token_end[k]`` must exceed k: a query that saw no key would be NaN.
    ``interpret`` runs the kernel step by step on any platform, at any block and head width; without it the kernel
    compiles for TPUs only, and lowering for another platform fails.

    XLA cannot partition a kernel: on more than one device, call it under ``jax.shard_map`` with ``check_vma=False``,
    with rows over the data axes, query and key/value heads over the model axis, and ``token_end`` as the rows are. Of
    tokens only those of the queries may be shared out: with a ``start``, the first index of a block, queries are those
    of the U tokens from there on.

    Raises:
      InputError: a block or head width that TPU tiles do not fit, more than a TPU core's memory holds, a window, a cap
        or a scale other than 1 / sqrt(D), which the kernel does not know, or what ``block_pairs.check`` refuses.
    """
    for name, given in (("a sliding window", window), ("a soft cap", cap)):
        if given is not None:
            raise InputError(f"attention: the TPU kernel cannot honour {name}; set attention to 'blocked'")
    if scale is not None and abs(scale * q.shape[-1] ** 0.5 - 1) > 1e-6:
        raise InputError(
            f"attention: the TPU kernel multiplies scores by {q.shape[-1] ** -0.5}, 1 / sqrt(head width), and cannot"
            f" honour {scale}; set attention to 'blocked'"
        )
    block_pairs.check(q, k, v, token_end, block=block, part=start is not None)
    if not interpret:
        _check_tiles(q, k, block)
    return _attend(q, k, v, token_end, None if start is None else start // block, block, interpret)


def _check_tiles(q, k, block: int) -> None:
    rows, queries, heads, width = q.shape
    if block % LANES or width not in WIDTHS:
        raise InputError(
            f"attention: the TPU kernel takes heads of width {', '.join(map(str, WIDTHS))} and blocks that are a"
            f" multiple of {LANES}, got width {width} and blocks of {block}; use the blocked attention"
        )
    groups = heads // k.shape[2]
    if groups * block * max(width, LANES) > NUMBERS:
        raise InputError(
            f"attention: {groups} query heads of width {width} share a key/value head, and the TPU kernel holds at"
            f" most {NUMBERS // block // max(width, LANES)} in blocks of {block} tokens; use the blocked attention"
        )
    tokens, blocks = k.shape[1], k.shape[1] // block
    pairs = blocks * (blocks + 1) // 2 if queries == tokens else blocks * (queries // block)
    scalars = 4 * 2 * rows * -(-pairs // LANES) * LANES
    if scalars > SCALARS:
        raise InputError(
            f"attention: {rows} rows of {tokens} tokens a device are {blocks} blocks each, whose pairs take {scalars}"
            f" bytes, and the TPU kernel has {SCALARS}; use fewer rows a device or shorter rows"
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _attend(q, k, v, token_end, start, block, interpret):
    return _forward(q, k, v, token_end, start, block, interpret)[0]


def _forward(q, k, v, token_end, start, block, interpret):
    part = None if start is None else block_pairs.Part(start, q.shape[1] // block)
    q, k, v = _grouped(q, k.shape[2]), k.swapaxes(1, 2), v.swapaxes(1, 2)
    groups, width = q.shape[2], q.shape[-1]
    call = _Call(_forward_kernel, block_pairs.by_query(token_end, block, part=part), start, block, interpret)
    out, lse = call(
        (token_end[:, :, None], "end"), (q, "query"), (k, "key"), (v, "key"),
        out=((jax.ShapeDtypeStruct(q.shape, q.dtype), "query"),
             (jax.ShapeDtypeStruct(q.shape[:-1], jnp.float32), "number")),
        scratch=((1, groups * block), (1, groups * block), (width, groups * block)),
    )  # fmt: skip
    return _heads(out), (q, k, v, token_end, start, out, lse)


def _backward(block, interpret, saved, cotangent):
    q, k, v, token_end, start, out, lse = saved
    part = None if start is None else block_pairs.Part(start, q.shape[3] // block)
    width, rows = q.shape[-1], q.shape[2] * block
    cotangent = _grouped(cotangent, k.shape[1])
    delta = jnp.einsum("...d,...d->...", cotangent, out, preferred_element_type=jnp.float32)
    operands = (
        (token_end[:, :, None], "end"), (q, "query"), (k, "key"), (v, "key"), (cotangent, "query"), (lse, "number"),
        (delta, "number"),
    )  # fmt: skip
    (dq,) = _Call(_query_kernel, block_pairs.by_query(token_end, block, part=part), start, block, interpret)(
        *operands, out=((jax.ShapeDtypeStruct(q.shape, q.dtype), "query"),), scratch=((width, rows),)
    )
    by_key = block_pairs.by_key(token_end, block, part)
    dk, dv = _Call(_key_kernel, by_key, start, block, interpret)(
        *operands,
        out=((jax.ShapeDtypeStruct(k.shape, k.dtype), "key"),) * 2,
        scratch=((block, width), (block, width)),
    )
    if part is not None:  # key blocks that none of these queries sees were never written
        seen = jnp.repeat(block_pairs.keys(by_key, k.shape[2] // block), block, axis=1)[:, None, :, None]
        dk, dv = jnp.where(seen, dk, 0), jnp.where(seen, dv, 0)
    return _heads(dq), dk.swapaxes(1, 2), dv.swapaxes(1, 2), None, None


_attend.defvjp(_forward, _backward)


class _Call:
    """A kernel over the grid (row, key/value head, pair), with operands named by the part that a pair reads of them."""

    def __init__(self, kernel, pairs: block_pairs.Pairs, start, block: int, interpret: bool):
        self.kernel, self.pairs, self.block, self.interpret = kernel, pairs, block, interpret
        self.start = jnp.zeros(1, jnp.int32) if start is None else start.astype(jnp.int32).reshape(1)

    def __call__(self, *operands, out, scratch):
        rows, heads = operands[1][0].shape[:2]
        grid = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(rows, heads, self.pairs.query.shape[1]),
            in_specs=[self._spec(array.shape, part) for array, part in operands],
            out_specs=[self._spec(shape.shape, part) for shape, part in out],
            scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
        )
        return pl.pallas_call(
            functools.partial(self.kernel, block=self.block),
            grid_spec=grid,
            out_shape=[shape for shape, _ in out],
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM
            ),
            interpret=self.interpret,
        )(*self.pairs, self.start, *(array for array, _ in operands))

    def _spec(self, shape: tuple[int, ...], part: str) -> pl.BlockSpec:
        """The block of an operand: one row, one key/value head, all its query heads, the tokens of a block."""
        block = self.block
        if part == "end":  # [B, T, 1]
            return pl.BlockSpec((1, block, 1), lambda b, h, p, query, key, *_: (b, key[b, p], 0))
        if part == "key":  # [B, K, T, D]
            return pl.BlockSpec((1, 1, block, shape[-1]), lambda b, h, p, query, key, *_: (b, h, key[b, p], 0))
        if part == "query":  # [B, K, G, T, D]
            return pl.BlockSpec(
                (1, 1, shape[2], block, shape[-1]), lambda b, h, p, query, *_: (b, h, 0, query[b, p], 0)
            )
        return pl.BlockSpec(  # [B, K, G, T]
            (1, 1, shape[2], block), lambda b, h, p, query, *_: (b, h, 0, query[b, p])
        )


def _forward_kernel(query, key, count, start, end, q, k, v, out, lse, highest, total, sums, *, block):
    turn = _turn(query, key, count, start, outer=query)

    @pl.when(turn.first)
    def _():
        highest[...] = jnp.full(highest.shape, LOW, jnp.float32)
        total[...] = jnp.zeros(total.shape, jnp.float32)
        sums[...] = jnp.zeros(sums.shape, jnp.float32)

    @pl.when(turn.used)
    def _():
        scores, seen = _scores(turn, end, q, k, block)
        new = jnp.maximum(highest[...], jnp.where(seen, scores, LOW).max(axis=0, keepdims=True))
        weights = jnp.where(seen, jnp.exp(scores - new), 0.0)
        fade = jnp.exp(highest[...] - new)
        total[...] = fade * total[...] + weights.sum(axis=0, keepdims=True)
        sums[...] = fade * sums[...] + _dot(v[0, 0], weights.astype(v.dtype), READ)
        highest[...] = new

    @pl.when(turn.last)
    def _():
        out[0, 0] = (sums[...] / total[...]).T.reshape(out.shape[2:]).astype(out.dtype)
        _write_lanes(lse, highest[...] + jnp.log(total[...]))


def _query_kernel(query, key, count, start, end, q, k, v, cotangent, lse, delta, dq, sums, *, block):
    turn = _turn(query, key, count, start, outer=query)

    @pl.when(turn.first)
    def _():
        sums[...] = jnp.zeros(sums.shape, jnp.float32)

    @pl.when(turn.used)
    def _():
        _, moved = _moved(turn, end, q, k, v, cotangent, lse, delta, block)
        sums[...] += _dot(k[0, 0], moved, READ)

    @pl.when(turn.last)
    def _():
        dq[0, 0] = sums[...].T.reshape(dq.shape[2:]).astype(dq.dtype)


def _key_kernel(query, key, count, start, end, q, k, v, cotangent, lse, delta, dk, dv, key_sums, value_sums, *, block):
    turn = _turn(query, key, count, start, outer=key)

    @pl.when(turn.first)
    def _():
        key_sums[...] = jnp.zeros(key_sums.shape, jnp.float32)
        value_sums[...] = jnp.zeros(value_sums.shape, jnp.float32)

    @pl.when(turn.used)
    def _():
        weights, moved = _moved(turn, end, q, k, v, cotangent, lse, delta, block)
        key_sums[...] += _dot(moved, _flat(q), SPREAD)
        value_sums[...] += _dot(weights.astype(v.dtype), _flat(cotangent), SPREAD)

    @pl.when(turn.last)
    def _():
        dk[0, 0] = key_sums[...].astype(dk.dtype)
        dv[0, 0] = value_sums[...].astype(dv.dtype)


class _Turn(NamedTuple):
    """A step of the grid: its pair of blocks, whether it counts, and whether it is the first or last of its sums."""

    query: Int[Array, ""]
    key: Int[Array, ""]
    used: Bool[Array, ""]
    first: Bool[Array, ""]
    last: Bool[Array, ""]


def _turn(query, key, count, start, *, outer) -> _Turn:
    """Reads the scalars of this step; ``outer`` is the list of blocks whose sums are kept from step to step."""
    row, step = pl.program_id(0), pl.program_id(2)
    now, before = outer[row, step], outer[row, jnp.maximum(step - 1, 0)]
    after = outer[row, jnp.minimum(step + 1, outer.shape[1] - 1)]
    used = step < count[row]
    first = used & ((step == 0) | (before != now))
    last = used & ((step == count[row] - 1) | (after != now))
    return _Turn(query[row, step] + start[0], key[row, step], used, first, last)


def _scores(turn: _Turn, end, q, k, block: int):
    """Transposed scores [b, R] of this step's pair, and which of them count."""
    scores = _dot(k[0, 0], _flat(q), SCORES) * q.shape[-1] ** -0.5
    key_at = turn.key * block + jax.lax.broadcasted_iota(jnp.int32, (block, block), 0)
    query_at = turn.query * block + jax.lax.broadcasted_iota(jnp.int32, (block, block), 1)
    # A query keeps its index where it comes no earlier than the key; elsewhere it gets one that no key reaches.
    query_at = jnp.where(key_at <= query_at, query_at, jnp.iinfo(jnp.int32).max)
    return scores, jnp.concatenate([query_at] * q.shape[2], axis=1) < end[0]


def _moved(turn: _Turn, end, q, k, v, cotangent, lse, delta, block: int):
    """Attention weights [b, R] and the loss's gradient by the products of queries and keys, in their dtype."""
    scores, seen = _scores(turn, end, q, k, block)
    weights = jnp.where(seen, jnp.exp(scores - _read_lanes(lse)), 0.0)
    moved = weights * (_dot(v[0, 0], _flat(cotangent), SCORES) - _read_lanes(delta))
    return weights, (moved * q.shape[-1] ** -0.5).astype(q.dtype)


def _dot(x, y, axes):
    return jax.lax.dot_general(x, y, (axes, ((), ())), preferred_element_type=jnp.float32)


def _flat(x):
    """[1, 1, G, b, D] as [R, D]."""
    return x[0, 0].reshape(-1, x.shape[-1])


def _read_lanes(x):
    """[1, 1, G, b] as [1, R]."""
    return jnp.concatenate([x[0, 0, group : group + 1, :] for group in range(x.shape[2])], axis=1)


def _write_lanes(x, value):
    block = x.shape[3]
    for group in range(x.shape[2]):
        x[0, 0, group : group + 1, :] = value[:, group * block : (group + 1) * block]


def _grouped(x: Float[Array, "B T H D"], kv_heads: int) -> Float[Array, "B K G T D"]:
    rows, tokens, heads, width = x.shape
    return x.reshape(rows, tokens, kv_heads, heads // kv_heads, width).transpose(0, 2, 3, 1, 4)


def _heads(x: Float[Array, "B K G T D"]) -> Float[Array, "B T H D"]:
    rows, kv_heads, groups, tokens, width = x.shape
    return x.transpose(0, 3, 1, 2, 4).reshape(rows, tokens, kv_heads * groups, width)
