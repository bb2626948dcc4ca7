"""The sampling engine: cache slots, and two jitted calls: one reads tokens into slots, one writes a few more in each.

What a slot holds is the cache of a context without its last token, which is read by the step that draws the next one.
So a turn may begin, pause and go on anywhere, whatever the other slots do.

Axes: S slots of a call, P new tokens a slot, N tokens of a chunk, V vocabulary, A automaton states, M and K of a menu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from rlsearch.errors import InputError
from rlsearch.models import decoder, sharding
from rlsearch.models.decoder import Cache, DecoderConfig, Params
from rlsearch.sampling import draw as draws
from rlsearch.sampling import menu as menus
from rlsearch.sampling.automaton import Stops
from rlsearch.sampling.budget import BudgetConfig
from rlsearch.sampling.calls import CallsConfig
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.menu import Menu


@dataclass(frozen=True)
class SamplingConfig:
    """How rollouts are written."""

    slots: tuple  # sizes that calls are padded to, ascending; the last is how many episodes are written at once
    max_context: int  # tokens of an episode at most, prompt and observations included
    max_turn_tokens: int  # tokens that the policy writes in one turn at most
    max_observation_tokens: int  # tokens appended after a turn at most; passage text beyond that is cut, tags stay
    buckets: tuple  # lengths to which newly read tokens are padded, ascending; longer ones are read in several calls
    chunk: int  # tokens written in a slot before finished ones are looked at and refilled
    temperature: float  # with the three below: see ``Draw``
    top_k: int
    top_p: float
    min_p: float
    frozen_roles: (
        tuple  # roles that the policy writes as it was before reinforcement learning; their tokens are not trained
    )
    calls: CallsConfig
    budget: BudgetConfig | None  # of the rollouts of a question; None sets no limit

    def __post_init__(self):
        _ = self.draw  # refuses what it cannot be
        for name in ("slots", "buckets"):
            sizes = getattr(self, name)
            if not sizes or min(sizes) < 1 or list(sizes) != sorted(set(sizes)):
                raise InputError(
                    f"config.sampling.{name} is {sizes}; needs sizes of 1 or more, each larger than the last"
                )
        for name in ("max_turn_tokens", "chunk"):
            if getattr(self, name) < 1:
                raise InputError(f"config.sampling.{name} is {getattr(self, name)}; needs 1 token or more")

    @property
    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_k, self.top_p, self.min_p)


@dataclass
class Writing:
    """A turn that is being written.

    Attributes:
      slot: where its context is.
      length: tokens that the slot holds.
      last: the token behind them, not read yet.
      key: a random key's data, uint32[2]; token n of the turn is drawn with ``fold_in(key, n)``.
      draw: how tokens are drawn.
      state: of the automaton of its stops, or of its menu.
      left: tokens that it may still write.
      menu: what it has to choose from, None where it writes freely.
      step: number of the next token in the turn.
      tokens, logps, entropies: what was written; in nats, under the distribution that was drawn from, or at temperature
        1 where the most likely token is taken.
      stopped: whether it reached a stop string, an end token or the end of a menu's string.
    """

    slot: int
    length: int
    last: int
    key: np.ndarray
    draw: Draw
    state: int
    left: int
    menu: Menu | None = None
    step: int = 0
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    stopped: bool = False

    @property
    def finished(self) -> bool:
        return self.stopped or self.left == 0


class Engine:
    """Cache slots on the device. ``params`` are arguments of every call, so a new policy needs no new engine.

    Args:
      cfg: the model.
      sampling: sizes and draws.
      stops: the stop strings of every kind of turn.
      end_ids: tokens that end a turn by themselves.
      mesh: where the cache is laid out, slots over its axes data, fsdp and sequence and heads over model; None for this
        process's first device.
    """

    def __init__(
        self, cfg: DecoderConfig, sampling: SamplingConfig, stops: Stops, *, end_ids: Sequence[int],
        mesh: Mesh | None = None,
    ):  # fmt: skip
        if sampling.max_context > cfg.max_positions:
            raise InputError(
                f"config.sampling.max_context is {sampling.max_context}, but the model has"
                f" {cfg.max_positions} positions"
            )
        self.cfg, self.sampling, self.stops = cfg, sampling, stops
        is_end = np.zeros(cfg.vocab_size, bool)
        is_end[list(end_ids)] = True
        table = np.zeros((len(stops.table), cfg.vocab_size), np.int32)  # rows of the embedding that stand for nothing
        table[:, : stops.table.shape[1]] = stops.table
        # Padding is written too, past the context and by idle rows, so the cache has room for it beyond the context.
        self.capacity = sampling.max_context + max(sampling.buckets)
        self._place = jax.local_devices()[0] if mesh is None else sharding.replicated(mesh)
        self._marks = jax.device_put(_Marks(table, stops.accepting, is_end), self._place)
        place = self._place if mesh is None else sharding.of_cache(cfg.n_kv_heads, mesh, slots=sampling.slots)
        cache = decoder.empty_cache(cfg, slots=sampling.slots[-1], capacity=self.capacity)
        self.cache = jax.device_put(cache, place)  # committed, as every later one: compiled once
        self._prepared: tuple[Params, Params] | None = None

    def read(self, params: Params, *, slots: Sequence[int], new: Sequence[Sequence[int]], start: Sequence[int]) -> None:
        """Reads new tokens into some slots.

        Args:
          params: of the model.
          slots: which slots, each once.
          new: the tokens to read, one list for each of them.
          start: tokens that each slot holds already; what lies behind is forgotten.

        Raises:
          InputError: more than the context in all.
        """
        params, largest = self.prepare(params), self.sampling.buckets[-1]
        waiting = [(slot, list(ids), at) for slot, ids, at in zip(slots, new, start, strict=True) if len(ids)]
        for slot, ids, at in waiting:
            self._check(slot, at + len(ids))
        while waiting:
            by_bucket: dict[int, list] = {}
            for slot, ids, at in waiting:
                bucket = next(b for b in self.sampling.buckets if b >= min(len(ids), largest))
                by_bucket.setdefault(bucket, []).append((slot, ids[:largest], at))
            for bucket, part in sorted(by_bucket.items()):
                self._read(params, part, bucket)
            waiting = [(slot, ids[largest:], at + largest) for slot, ids, at in waiting if len(ids) > largest]

    def write(self, params: Params, writings: Sequence[Writing]) -> None:
        """Writes up to ``config.sampling.chunk`` tokens of every turn; none is finished yet, and no two share a slot.

        Raises:
          InputError: a turn that could outgrow its context.
        """
        params = self.prepare(params)
        for writing in writings:
            self._check(writing.slot, writing.length + 1 + writing.left)
        rows, wide, whole = self._rows([writing.slot for writing in writings])
        take = partial(_column, writings, rows, wide)
        call = _Call(
            slots=take("slot", idle=self.sampling.slots[-1]),  # no such slot: nothing is stored
            length=take("length", idle=self.sampling.max_context),  # behind all that is ever read
            last=take("last", idle=0),
            state=take("state", idle=0),
            left=take("left", idle=0),
            step=take("step", idle=0),
            key=np.zeros((wide, 2), np.uint32),
            draw=draws.columns([writing.draw for writing in writings], rows, wide),
            menu=_menus([writing.menu for writing in writings], rows, wide),
        )  # fmt: skip
        call.key[rows] = [writing.key for writing in writings]
        self.cache, chunk = _write(
            params, self.cache, call, self._marks, cfg=self.cfg, size=self.sampling.chunk, whole=whole
        )
        columns = [np.asarray(column) for column in chunk]
        for row, writing in zip(rows, writings, strict=True):
            _extend(writing, _Chunk(*[column[row] for column in columns]))

    def copy(self, *, source: Sequence[int], target: Sequence[int]) -> None:
        """Copies slots, all at once: how a prompt is read once for its group, and how a rollout branches."""
        if len(target) == 0:
            return
        size = next(size for size in self.sampling.slots if size >= len(target))
        rows = np.arange(len(target))
        self.cache = _copy(
            self.cache, _filled(source, rows, size, idle=0), _filled(target, rows, size, idle=self.sampling.slots[-1])
        )

    def prepare(self, params: Params) -> Params:
        """Parameters as the calls take them, one array a layer; kept for the last ones given."""
        if self._prepared is None or self._prepared[0] is not params:
            self._prepared = None  # so that two copies are never held
            self._prepared = (params, _prepare(params, cfg=self.cfg))
        return self._prepared[1]

    def _read(self, params: Params, part: list[tuple[int, list[int], int]], bucket: int) -> None:
        slots = [slot for slot, _, _ in part]
        rows, wide, whole = self._rows(slots)
        new = np.zeros((wide, bucket), np.int32)
        for row, (_, ids, _) in zip(rows, part, strict=True):
            new[row, : len(ids)] = ids
        start = _filled([at for _, _, at in part], rows, wide, idle=self.sampling.max_context)
        slots = _filled(slots, rows, wide, idle=self.sampling.slots[-1])
        self.cache = _read(params, self.cache, slots, new, start, cfg=self.cfg, whole=whole)

    def _rows(self, slots: Sequence[int]) -> tuple[np.ndarray, int, bool]:
        """The rows of a call that slots take, how many it has, and whether row s is slot s."""
        wide = next(size for size in self.sampling.slots if size >= len(slots))
        whole = wide == self.sampling.slots[-1]
        return np.asarray(slots) if whole else np.arange(len(slots)), wide, whole

    def _check(self, slot: int, total: int) -> None:
        if total > self.sampling.max_context:
            raise InputError(
                f"slot {slot}: {total} tokens in all exceed config.sampling.max_context {self.sampling.max_context}"
            )


class _Marks(NamedTuple):
    """What tells where turns end."""

    table: Int[Array, "A V"]
    accepting: Bool[Array, "A"]
    is_end: Bool[Array, "V"]


class _Call(NamedTuple):
    """Turns as arrays of one size; rows that belong to none are idle."""

    slots: Int[Array, "S"]
    length: Int[Array, "S"]
    last: Int[Array, "S"]
    state: Int[Array, "S"]
    left: Int[Array, "S"]
    step: Int[Array, "S"]
    key: Array
    draw: draws.Columns
    menu: _Menus | None


class _Menus(NamedTuple):
    """The menus of a call's rows; a row that chooses from none has a false ``chooses``."""

    chooses: Bool[Array, "S"]
    allowed: Int[Array, "S M K"]
    after: Int[Array, "S M K"]


class _Chunk(NamedTuple):
    """What a call wrote: ``tokens[s, :count[s]]``, and where the turn stands."""

    tokens: Int[Array, "S N"]
    logps: Float[Array, "S N"]
    entropies: Float[Array, "S N"]
    count: Int[Array, "S"]
    state: Int[Array, "S"]
    stopped: Bool[Array, "S"]


def _extend(writing: Writing, new: _Chunk) -> None:
    """Adds a chunk to a turn."""
    count = int(new.count)
    writing.tokens += new.tokens[:count].tolist()
    writing.logps += new.logps[:count].tolist()
    writing.entropies += new.entropies[:count].tolist()
    writing.state, writing.stopped = int(new.state), bool(new.stopped)
    writing.last, writing.length = writing.tokens[-1], writing.length + count
    writing.left, writing.step = writing.left - count, writing.step + count


def _column(writings: Sequence[Writing], rows: np.ndarray, size: int, name: str, *, idle: int) -> np.ndarray:
    return _filled([getattr(writing, name) for writing in writings], rows, size, idle=idle)


def _filled(values: Sequence[int], rows: np.ndarray, size: int, *, idle: int) -> np.ndarray:
    """The values at ``rows``, ``idle`` elsewhere."""
    column = np.full(size, idle, np.int32)
    column[rows] = values
    return column


def _menus(given: Sequence[Menu | None], rows: np.ndarray, size: int) -> _Menus | None:
    """Menus padded to powers of two, so that few shapes occur; None where no turn chooses."""
    if all(menu is None for menu in given):
        return None
    tall, wide = (
        1 << (max(menu.allowed.shape[axis] for menu in given if menu is not None) - 1).bit_length() for axis in (0, 1)
    )
    made = _Menus(
        np.zeros(size, bool),
        np.full((size, tall, wide), menus.NONE, np.int32),
        np.full((size, tall, wide), 0, np.int32),
    )
    for row, menu in zip(rows, given, strict=True):
        if menu is not None:
            made.chooses[row] = True
            made.allowed[row, : menu.allowed.shape[0], : menu.allowed.shape[1]] = menu.allowed
            made.after[row, : menu.after.shape[0], : menu.after.shape[1]] = menu.after
    return made


@partial(jax.jit, static_argnames=("cfg",))
def _prepare(params, *, cfg):
    params = {**params, "blocks": decoder.unstack(params["blocks"], cfg.n_layers)}
    if not cfg.tied:
        params["head"] = {"kernel": decoder.head(params, cfg)}  # an adapter is added to it once, not for every token
    return params


@partial(jax.jit, static_argnames=("cfg", "whole"), donate_argnames=("store",))
def _read(params, store, slots, new, start, *, cfg, whole):
    _, cache = decoder.extend(params, cfg, _taken(store, slots, whole), token_id=new, start=start)
    return _kept(store, cache, slots, whole)


@partial(jax.jit, static_argnames=("cfg", "size", "whole"), donate_argnames=("store",))
def _write(params, store, call, marks, *, cfg, size, whole):
    rows, key = call.last.shape[0], jax.random.wrap_key_data(call.key)
    blank = _Chunk(
        tokens=jnp.zeros((rows, size), jnp.int32),
        logps=jnp.zeros((rows, size)),
        entropies=jnp.zeros((rows, size)),
        count=jnp.zeros(rows, jnp.int32),
        state=call.state,
        stopped=jnp.zeros(rows, bool),
    )
    begin = _Loop(jnp.int32(0), _taken(store, call.slots, whole), call.last, call.left > 0, blank)

    def more(loop: _Loop):
        return (loop.step < size) & loop.writing.any()

    def body(loop: _Loop):
        chunk, writing = loop.chunk, loop.writing
        hidden, cache = decoder.extend(
            params, cfg, loop.cache, token_id=loop.last[:, None], start=call.length + chunk.count
        )
        logits = decoder.logits(params, cfg, hidden[:, 0])
        logits = logits if call.menu is None else _offered(logits, call.menu, chunk.state)
        token, logp, entropy = draws.sample(key, call.step + chunk.count, logits, call.draw)
        state, ends = _follow(chunk.state, token, marks, call.menu)
        stopped, count = writing & ends, chunk.count + writing
        chunk = _Chunk(
            chunk.tokens.at[:, loop.step].set(jnp.where(writing, token, 0)),
            chunk.logps.at[:, loop.step].set(jnp.where(writing, logp, 0.0)),
            chunk.entropies.at[:, loop.step].set(jnp.where(writing, entropy, 0.0)),
            count,
            jnp.where(writing, state, chunk.state),
            chunk.stopped | stopped,
        )
        last = jnp.where(writing, token, loop.last)
        return _Loop(loop.step + 1, cache, last, writing & ~stopped & (count < call.left), chunk)

    loop = jax.lax.while_loop(more, body, begin)
    return _kept(store, loop.cache, call.slots, whole), loop.chunk


class _Loop(NamedTuple):
    step: Int[Array, ""]
    cache: Cache
    last: Int[Array, "S"]
    writing: Bool[Array, "S"]
    chunk: _Chunk


def _follow(state, token, marks: _Marks, menu: _Menus | None) -> tuple[Int[Array, "S"], Bool[Array, "S"]]:
    """The state after a token, and whether it ends the turn."""
    after = marks.table[state, token]
    ends = marks.accepting[after] | marks.is_end[token]
    if menu is None:
        return after, ends
    at = jnp.where(menu.chooses, state, 0)[:, None, None]
    allowed, onward = (jnp.take_along_axis(table, at, axis=1)[:, 0] for table in (menu.allowed, menu.after))
    chosen = jnp.max(jnp.where(allowed == token[:, None], onward, menus.DONE), axis=1)
    return jnp.where(menu.chooses, jnp.maximum(chosen, 0), after), jnp.where(menu.chooses, chosen == menus.DONE, ends)


def _offered(logits, menu: _Menus, state) -> Float[Array, "S V"]:
    """Logits of what a menu offers in this state, -inf elsewhere; all logits of rows that write freely."""
    state = jnp.where(menu.chooses, state, 0)
    allowed = jnp.take_along_axis(menu.allowed, state[:, None, None], axis=1)[:, 0]
    place = jnp.where(allowed == menus.NONE, logits.shape[1], allowed)
    open_ = jax.vmap(lambda at: jnp.zeros(logits.shape[1], bool).at[at].set(True, mode="drop"))(place)
    return jnp.where(open_ | ~menu.chooses[:, None], logits, -jnp.inf)


def _taken(store, slots, whole: bool) -> Cache:
    return store if whole else jax.tree.map(lambda leaf: leaf.at[slots].get(mode="clip"), store)


def _kept(store, cache, slots, whole: bool) -> Cache:
    return cache if whole else jax.tree.map(lambda old, row: old.at[slots].set(row, mode="drop"), store, cache)


@partial(jax.jit, donate_argnames=("cache",))
def _copy(cache, source, target):
    return jax.tree.map(lambda leaf: leaf.at[target].set(leaf[source], mode="drop"), cache)
