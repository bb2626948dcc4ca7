"""The sampling engine: cache slots, and one jitted call that reads what is new and writes until a stop.

Axes: S slots, P new tokens a slot, N tokens written at most, V vocabulary, A automaton states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from rlsearch.errors import InputError
from rlsearch.models import decoder
from rlsearch.models.decoder import Cache, DecoderConfig, Params
from rlsearch.sampling import draw as draws
from rlsearch.sampling.automaton import Automaton
from rlsearch.sampling.draw import Draw


@dataclass(frozen=True)
class SamplingConfig:
    """How rollouts are written."""

    slots: tuple  # sizes that calls are padded to, ascending; the last is how many episodes are held at once
    max_context: int  # tokens of an episode at most, prompt and observations included
    max_turn_tokens: int  # tokens that the policy writes in one turn at most
    max_observation_tokens: int  # tokens appended after a turn at most; passage text beyond that is cut, tags stay
    buckets: tuple  # lengths to which newly read tokens are padded, ascending; one compilation each
    temperature: float  # with the three below: see ``Draw``
    top_k: int
    top_p: float
    min_p: float

    def __post_init__(self):
        _ = self.draw  # refuses what it cannot be

    @property
    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_k, self.top_p, self.min_p)


class Written(NamedTuple):
    """What one call wrote: ``tokens[s, :count[s]]``, the stop included, with their log-probabilities.

    ``stopped`` tells turns that reached a stop string or an end token from those that ran out of tokens.
    """

    tokens: Int[Array, "S N"]
    logps: Float[Array, "S N"]
    count: Int[Array, "S"]
    stopped: Bool[Array, "S"]


class Engine:
    """Cache slots on the device. ``params`` are arguments of every call, so a new policy needs no new engine."""

    def __init__(self, cfg: DecoderConfig, sampling: SamplingConfig, automaton: Automaton, *, end_ids: Sequence[int]):
        if sampling.max_context > cfg.max_positions:
            raise InputError(
                f"config.sampling.max_context is {sampling.max_context}, but the model has"
                f" {cfg.max_positions} positions"
            )
        self.cfg, self.sampling = cfg, sampling
        self._table, self._accept = jnp.asarray(automaton.table), automaton.accept
        self._is_end = jnp.zeros((cfg.vocab_size,), bool).at[jnp.asarray(list(end_ids), jnp.int32)].set(True)
        # Padding is written too, past the context and by idle rows, so the cache has room for it beyond the context.
        self.capacity = sampling.max_context + max(*sampling.buckets, sampling.max_turn_tokens)
        cache = decoder.empty_cache(cfg, slots=sampling.slots[-1], capacity=self.capacity)
        self.cache = jax.device_put(cache, jax.local_devices()[0])  # committed, as every later one: compiled once

    def write(
        self,
        params: Params,
        *,
        slots: Sequence[int],
        new: Sequence[Sequence[int]],
        start: Sequence[int],
        budget: Sequence[int],
        key: Array,
        draw: Draw | Sequence[Draw],
    ) -> Written:
        """Reads new tokens into some slots and writes the policy's next turn in each.

        Args:
          params: of the policy.
          slots: which slots, each once.
          new: the tokens to read, one list for each of them, none empty.
          start: tokens that each slot holds already; what lies behind is forgotten.
          budget: tokens to write at most in each; 0 only reads.
          key: random keys, at least one for each; token n of a turn is drawn with ``fold_in(key, n)``.
          draw: how tokens are drawn, in all slots or in each of them. Log-probabilities are those of the distribution
            that was drawn from, and those at temperature 1 where the most likely token is taken.

        Returns:
          What was written. The last token written is not read yet: pass it with the next ``new``.

        Raises:
          InputError: more new tokens than the largest bucket, or more than the context in all.
        """
        self._check(slots, new, start, budget)
        wide = next(size for size in self.sampling.slots if size >= len(slots))
        long = next(bucket for bucket in self.sampling.buckets if bucket >= max(map(len, new)))
        whole = wide == self.sampling.slots[-1]
        rows = np.asarray(slots) if whole else np.arange(len(slots))  # with every slot in the call, row s is slot s
        call = _Call(
            slots=_rows(slots, rows, wide, idle=self.sampling.slots[-1]),  # no such slot: nothing is stored
            new=np.zeros((wide, long), np.int32),
            start=_rows(start, rows, wide, idle=self.sampling.max_context),  # behind all that is ever read
            count=_rows([len(ids) for ids in new], rows, wide, idle=0),
            budget=_rows(budget, rows, wide, idle=0),
            key=np.zeros((wide, 2), np.uint32),
            draw=draws.columns([draw] * len(slots) if isinstance(draw, Draw) else draw, rows, wide),
        )
        call.key[rows] = np.asarray(jax.random.key_data(key))[: len(slots)]
        for row, ids in zip(rows, new, strict=True):
            call.new[row, : len(ids)] = ids
        self.cache, written = _write(
            params, self.cache, call, self._table, self._is_end,
            cfg=self.cfg, limit=self.sampling.max_turn_tokens, accept=self._accept, whole=whole,
        )  # fmt: skip
        return Written(*[np.asarray(column)[rows] for column in written])

    def copy(self, *, source: Sequence[int], target: Sequence[int]) -> None:
        """Copies slots: how a prompt is read once for its group, and how a rollout branches."""
        index = np.arange(self.sampling.slots[-1])
        index[np.asarray(target)] = source
        self.cache = _copy(self.cache, index)

    def _check(self, slots, new, start, budget) -> None:
        longest = max(map(len, new))
        if longest > max(self.sampling.buckets):
            raise InputError(
                f"{longest} new tokens at once exceed the largest of config.sampling.buckets {self.sampling.buckets};"
                f" add a larger one"
            )
        total = [held + len(ids) + more for held, ids, more in zip(start, new, budget, strict=True)]
        if max(total) > self.sampling.max_context:
            slot = int(np.argmax(total))
            raise InputError(
                f"slot {slots[slot]}: {start[slot]} tokens, {len(new[slot])} more and {budget[slot]} to write exceed"
                f" config.sampling.max_context {self.sampling.max_context}"
            )


class _Call(NamedTuple):
    """The arguments of ``Engine.write`` as arrays of one size; rows that no slot asked for are idle."""

    slots: Int[Array, "S"]
    new: Int[Array, "S P"]
    start: Int[Array, "S"]
    count: Int[Array, "S"]
    budget: Int[Array, "S"]
    key: Array
    draw: draws.Columns


def _rows(values: Sequence[int], rows: np.ndarray, size: int, *, idle: int) -> np.ndarray:
    """The values at ``rows``, ``idle`` elsewhere."""
    column = np.full(size, idle, np.int32)
    column[rows] = values
    return column


class _Loop(NamedTuple):
    step: Int[Array, ""]
    cache: Cache
    logits: Float[Array, "S V"]
    state: Int[Array, "S"]
    writing: Bool[Array, "S"]
    written: Written


@partial(jax.jit, static_argnames=("cfg", "limit", "accept", "whole"), donate_argnames=("store",))
def _write(params, store, call, table, is_end, *, cfg, limit, accept, whole):
    slots, new, start, count, budget, key, draw = call
    rows, key = new.shape[0], jax.random.wrap_key_data(key)
    cache = store if whole else jax.tree.map(lambda leaf: leaf.at[slots].get(mode="clip"), store)
    params = {**params, "blocks": decoder.unstack(params["blocks"], cfg.n_layers)}
    if not cfg.tied:
        params["head"] = {"kernel": decoder.head(params, cfg)}  # an adapter is added to it once, not for every token
    hidden, cache = decoder.extend(params, cfg, cache, token_id=new, start=start)
    last = jnp.take_along_axis(hidden, jnp.maximum(count - 1, 0)[:, None, None], axis=1)[:, 0]
    blank = Written(
        jnp.zeros((rows, limit), jnp.int32), jnp.zeros((rows, limit)), jnp.zeros(rows, jnp.int32), jnp.zeros(rows, bool)
    )
    loop = _Loop(
        jnp.int32(0),
        cache,
        decoder.logits(params, cfg, last),
        jnp.zeros(rows, jnp.int32),
        (count > 0) & (budget > 0),
        blank,
    )

    def more(loop: _Loop):
        return (loop.step < limit) & loop.writing.any()

    def body(loop: _Loop):
        token, logp = draws.sample(key, loop.step, loop.logits, draw)
        written, state = loop.written, jnp.where(loop.writing, table[loop.state, token], loop.state)
        total = written.count + loop.writing
        stopped = loop.writing & ((state == accept) | is_end[token])
        writing = loop.writing & ~stopped & (total < budget)
        written = Written(
            written.tokens.at[:, loop.step].set(jnp.where(loop.writing, token, 0)),
            written.logps.at[:, loop.step].set(jnp.where(loop.writing, logp, 0.0)),
            total,
            written.stopped | stopped,
        )

        def read(cache):
            return decoder.extend(params, cfg, cache, token_id=token[:, None], start=start + count + loop.step)

        def skip(cache):
            return jnp.zeros((rows, 1, cfg.d_model), cfg.dtype), cache

        hidden, cache = jax.lax.cond(writing.any(), read, skip, loop.cache)
        return _Loop(loop.step + 1, cache, decoder.logits(params, cfg, hidden[:, 0]), state, writing, written)

    loop = jax.lax.while_loop(more, body, loop)
    if whole:
        return loop.cache, loop.written
    return jax.tree.map(lambda old, row: old.at[slots].set(row, mode="drop"), store, loop.cache), loop.written


@partial(jax.jit, donate_argnames=("cache",))
def _copy(cache, source):
    return jax.tree.map(lambda leaf: leaf[source], cache)
