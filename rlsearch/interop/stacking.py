"""Between our stacked parameters and one named tensor a layer."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlsearch.errors import InputError, nearest
from rlsearch.interop import names
from rlsearch.models.decoder import DecoderConfig

VOCABULARY = {"embed.embedding": 0, "head.kernel": 1}  # the parameters with an entry for each id, and along which axis
ALL = slice(None)
PIECE = 1 << 24  # numbers of these, which may be larger than layers, that are in memory at once


def tensors(params: dict[str, Any], cfg: DecoderConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor of a checkpoint by its Hugging Face name, contiguous."""
    for name, parts in itertools.groupby(pieces(params, cfg), key=lambda piece: piece[0]):
        arrays = [array for _, array in parts]
        yield name, arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def pieces(
    params: dict[str, Any], cfg: DecoderConfig, *, vocab_size: int | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor by its Hugging Face name, layer after layer, one in memory at a time, large ones in runs of rows.

    ``vocab_size`` keeps that many ids and cuts the rows behind them, which pad an embedding. Parameters in
    ``names.DROPPED`` are left out.

    Raises:
      InputError: a parameter is missing, unknown, misshapen, of another type than the config says, or not finite.
    """
    given = checked(params, cfg)
    for row, index in _places(cfg):
        where = f"parameter {row.path}" + (f" of {_numbers(index)}" if index else "")
        leaf = given[row.path][index] if index else given[row.path]
        parts = [leaf]
        if row.path in VOCABULARY:
            runs = _runs(vocab_size or cfg.vocab_size, cfg)
            parts = (leaf[run] if VOCABULARY[row.path] == 0 else leaf[:, run] for run in runs)
        for part in parts:
            array = np.asarray(jax.device_get(part))
            check_finite(array, where)
            yield named(row.name, index), row.layout.theirs(array)


def described(cfg: DecoderConfig) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of every tensor of a checkpoint by its Hugging Face name, in the order of :func:`pieces`."""
    shapes = names.shapes(cfg)
    return {
        named(row.name, index): (row.layout.shape(shapes[row.path].shape[row.stacked :]), shapes[row.path].dtype)
        for row, index in _places(cfg)
    }


def _places(cfg: DecoderConfig) -> Iterator[tuple[names.Row, tuple[int, ...]]]:
    """Every row of the table with its numbers, layer by layer."""
    once = [row for row in names.rows(cfg) if not row.stacked]
    yield once[0], ()
    for layer in range(cfg.n_layers):
        for row in names.rows(cfg):
            if row.stacked:
                for rest in np.ndindex((cfg.experts.count,) if row.stacked > 1 else ()):
                    yield row, (layer, *rest)
    yield from ((row, ()) for row in once[1:])


def _runs(count: int, cfg: DecoderConfig) -> list[slice]:
    size = max(1, PIECE // cfg.d_model)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _numbers(index: tuple[int, ...]) -> str:
    return ", ".join(f"{what} {number}" for what, number in zip(("layer", "expert"), index, strict=False))


def checked(params: dict[str, Any], cfg: DecoderConfig) -> dict[str, Any]:
    """The leaves that are exported by dotted path, their names, shapes and types as the config says.

    Raises:
      InputError: one is not.
    """
    wanted = names.shapes(cfg)
    given = {path: leaf for path, leaf in names.flatten(params) if path not in names.DROPPED}
    for path in given:
        if path not in wanted:
            raise InputError(f"parameter {path}: family {cfg.family!r} has no place for it{nearest(path, wanted)}")
    for path, want in wanted.items():
        if path not in given:
            raise InputError(f"parameter {path}: missing; needs shape {want.shape}")
        if given[path].shape != want.shape or given[path].dtype != want.dtype:
            raise InputError(
                f"parameter {path}: is {given[path].dtype} {list(given[path].shape)}, "
                f"the config says {want.dtype} {list(want.shape)}"
            )
    return given


def named(name: str, index: tuple[int, ...]) -> str:
    """A name of the table with its numbers filled in."""
    return name.format(**dict(zip(("layer", "expert"), index, strict=False)))


def parameters(
    cfg: DecoderConfig,
    *,
    have: Iterable[str],
    read: Callable[[str, slice], np.ndarray],
    column: Callable[[names.Row], str],
    where: str,
    shardings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Our parameters from named tensors, one of them in memory beside the parameters.

    Args:
      cfg: the model; its ``param_dtype`` is the type that tensors must have.
      have: the names there are.
      read: gives a run of rows of the tensor of a name, laid out as Hugging Face does.
      column: the column of the table that ``have`` uses, with ``{layer}`` in it.
      where: the file or directory, for messages.
      shardings: nested as the parameters are; where given, each layer goes to the devices as soon as it is read.

    Returns:
      The parameters as NumPy arrays, or where ``shardings`` are given as arrays laid out so.

    Raises:
      InputError: a tensor is missing, left over, misshapen, of another type, or not finite.
    """
    left = set(have)
    shapes = names.shapes(cfg)
    where_to = {} if shardings is None else dict(names.flatten(shardings))
    leaves = {}
    for row in names.rows(cfg):
        want, template = shapes[row.path], column(row)
        stacked = ("{layer}" in template) + ("{expert}" in template)
        leaf = _Leaf(want, where_to.get(row.path))
        for index in np.ndindex(want.shape[:stacked]):
            name = named(template, index)
            if name not in left:
                raise InputError(f"{where}: no tensor {name!r}; a {cfg.family} model of {cfg.n_layers} layers needs it")
            for run in _runs(cfg.vocab_size, cfg) if row.path in VOCABULARY else [ALL]:
                part = _checked(read(name, run), row, want, stacked, run, f"{where}: tensor {name!r}")
                leaf.put(index if run is ALL else (run.start,) if VOCABULARY[row.path] == 0 else (0, run.start), part)
            left.remove(name)
        leaves[row.path] = leaf.whole()
    _leave(left, read, column, leaves["embed.embedding"], cfg)
    if left:
        raise InputError(
            f"{where}: {len(left)} tensors have no place in a {cfg.family} model of {cfg.n_layers} layers"
            f"{' with a tied head' if cfg.tied else ''}: {', '.join(sorted(left)[:5])}"
        )
    return names.unflatten(leaves)


class _Leaf:
    """A parameter that is filled part by part, in host memory or on devices."""

    def __init__(self, want: jax.ShapeDtypeStruct, sharding: Any):
        self._sharding = sharding
        if sharding is None:
            self._array = np.empty(want.shape, want.dtype)
        else:
            self._array = jax.jit(lambda: jnp.zeros(want.shape, want.dtype), out_shardings=sharding)()

    def put(self, start: tuple[int, ...], part: np.ndarray) -> None:
        whole = self._array
        start = (*start, *[0] * (whole.ndim - len(start)))
        part = part.reshape((1,) * (whole.ndim - part.ndim) + part.shape)
        if self._sharding is None:
            whole[tuple(slice(at, at + size) for at, size in zip(start, part.shape, strict=True))] = part
            return
        axes = itertools.zip_longest(self._sharding.spec, part.shape, whole.shape)
        spec = jax.sharding.PartitionSpec(*(axis if size == all_ else None for axis, size, all_ in axes))
        placed = jax.device_put(part, jax.sharding.NamedSharding(self._sharding.mesh, spec))
        self._array = _write(self._sharding)(whole, placed, np.asarray(start, np.int32))
        self._array.block_until_ready()  # so that no more than one part waits in host memory

    def whole(self) -> Any:
        return self._array


@functools.cache
def _write(sharding: Any) -> Callable:
    """Puts a part in place without a copy of the whole."""

    def write(whole, part, start):
        return jax.lax.dynamic_update_slice(whole, part, [start[axis] for axis in range(whole.ndim)])

    return jax.jit(write, donate_argnums=0, out_shardings=sharding)


def _leave(left: set[str], read: Callable, column: Callable, embedding: Any, cfg: DecoderConfig) -> None:
    """Some checkpoints hold a tied head a second time; it is left, unless it is another one."""
    name = column(names.HEAD)
    if cfg.tied and name in left and np.array_equal(read(name, ALL), np.asarray(jax.device_get(embedding))):
        left.remove(name)


def check_finite(array: np.ndarray, where: str) -> None:
    """Refuses an array with a NaN or an infinity."""
    bad = int(array.size - np.isfinite(array).sum())
    if bad:
        raise InputError(f"{where}: {bad} of {array.size} values are NaN or infinite; the checkpoint is damaged")


def _checked(
    array: np.ndarray, row: names.Row, want: jax.ShapeDtypeStruct, stacked: int, run: slice, where: str
) -> np.ndarray:
    """A tensor, or a run of its rows, as it lies with us; axes that only its own name does not count are the same."""
    shape, extra = want.shape[stacked:], row.stacked - stacked
    whole = (*shape[:extra], *row.layout.shape(shape[extra:]))
    if run is not ALL:
        axis = VOCABULARY[row.path]
        shape = (*shape[:axis], run.stop - run.start, *shape[axis + 1 :])
    theirs = (*shape[:extra], *row.layout.shape(shape[extra:]))
    if array.shape != theirs:
        raise InputError(f"{where} has shape {list(array.shape)}, the config says {list(whole)}")
    if array.dtype != want.dtype:
        raise InputError(f"{where} is {array.dtype}, the config says {want.dtype}")
    check_finite(array, where)
    if extra:
        return np.stack([row.layout.ours(part, shape[extra:]) for part in array])
    return row.layout.ours(array, shape)
