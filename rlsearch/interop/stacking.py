"""Between our stacked parameters and one named tensor a layer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlsearch.errors import InputError, nearest
from rlsearch.interop import names
from rlsearch.models.decoder import DecoderConfig

VOCABULARY = ("embed.embedding", "head.kernel")  # the parameters with a row or a column for each id


def tensors(
    params: dict[str, Any], cfg: DecoderConfig, *, vocab_size: int | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor of a checkpoint by its Hugging Face name, contiguous, layer after layer, one in memory at a time.

    ``vocab_size`` keeps that many ids and cuts the rows behind them, which pad an embedding. Parameters in
    ``names.DROPPED`` are left out.

    Raises:
      InputError: a parameter is missing, unknown, misshapen, of another type than the config says, or not finite.
    """
    given = checked(params, cfg)
    table = names.rows(cfg)
    first, last = [row for row in table if not row.stacked], [row for row in table if row.stacked]
    places = [(row, ()) for row in first[:1]]
    places += [
        (row, (layer, *rest)) for layer in range(cfg.n_layers) for row in last for rest in np.ndindex(_rest(row, cfg))
    ]
    for row, index in places + [(row, ()) for row in first[1:]]:
        part = given[row.path][index] if index else given[row.path]
        array = np.asarray(jax.device_get(part))
        if row.path in VOCABULARY and vocab_size is not None:
            array = array[:vocab_size] if row.path == VOCABULARY[0] else array[:, :vocab_size]
        where = f" of {'layer, expert' if len(index) > 1 else 'layer'} {', '.join(map(str, index))}" if index else ""
        check_finite(array, f"parameter {row.path}{where}")
        yield named(row.name, index), row.layout.theirs(array)


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


def described(cfg: DecoderConfig) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of every tensor of a checkpoint by its Hugging Face name."""
    found = {}
    for row in names.rows(cfg):
        want = names.shapes(cfg)[row.path]
        theirs = row.layout.shape(want.shape[row.stacked :])
        for index in np.ndindex(want.shape[: row.stacked]):
            found[named(row.name, index)] = (theirs, np.dtype(want.dtype))
    return found


def named(name: str, index: tuple[int, ...]) -> str:
    """A name of the table with its numbers filled in."""
    return name.format(**dict(zip(("layer", "expert"), index, strict=False)))


def _rest(row: names.Row, cfg: DecoderConfig) -> tuple[int, ...]:
    return (cfg.experts.count,) if row.stacked > 1 else ()


def parameters(
    cfg: DecoderConfig,
    *,
    have: Iterable[str],
    read: Callable[[str], np.ndarray],
    column: Callable[[names.Row], str],
    where: str,
    shardings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Our parameters from named tensors, one of them in memory beside the parameters.

    Args:
      cfg: the model; its ``param_dtype`` is the type that tensors must have.
      have: the names there are.
      read: gives the tensor of a name, laid out as Hugging Face does.
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
        leaf = _Leaf(want, where_to.get(row.path), stacked)
        for index in np.ndindex(want.shape[:stacked]):
            name = named(template, index)
            if name not in left:
                raise InputError(f"{where}: no tensor {name!r}; a {cfg.family} model of {cfg.n_layers} layers needs it")
            message = f"{where}: tensor {name!r}"
            leaf.put(index, _checked(read(name), row, want.shape[stacked:], want.dtype, row.stacked - stacked, message))
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

    def __init__(self, want: jax.ShapeDtypeStruct, sharding: Any, stacked: int):
        self._sharding, self._stacked = sharding, stacked
        if sharding is None:
            self._array = np.empty(want.shape, want.dtype)
        else:
            self._array = jax.jit(lambda: jnp.zeros(want.shape, want.dtype), out_shardings=sharding)()

    def put(self, index: tuple[int, ...], part: np.ndarray) -> None:
        if self._sharding is None:
            self._array[index] = part
            return
        spec = jax.sharding.PartitionSpec(*self._sharding.spec[self._stacked :])
        placed = jax.device_put(part, jax.sharding.NamedSharding(self._sharding.mesh, spec))
        self._array = _write(self._sharding)(self._array, placed, np.asarray(index, np.int32)) if index else placed

    def whole(self) -> Any:
        return self._array


@functools.cache
def _write(sharding: Any) -> Callable:
    """Puts a part in place without a copy of the whole."""

    def write(whole, part, index):
        part = jnp.expand_dims(part, range(whole.ndim - part.ndim))
        start = [*(index[i] for i in range(len(index))), *[jnp.int32(0)] * (whole.ndim - len(index))]
        return jax.lax.dynamic_update_slice(whole, part, start)

    return jax.jit(write, donate_argnums=0, out_shardings=sharding)


def _leave(left: set[str], read: Callable, column: Callable, embedding: Any, cfg: DecoderConfig) -> None:
    """Some checkpoints hold a tied head a second time; it is left, unless it is another one."""
    name = column(names.HEAD)
    if cfg.tied and name in left and np.array_equal(read(name), np.asarray(jax.device_get(embedding))):
        left.remove(name)


def check_finite(array: np.ndarray, where: str) -> None:
    """Refuses an array with a NaN or an infinity."""
    bad = int(array.size - np.isfinite(array).sum())
    if bad:
        raise InputError(f"{where}: {bad} of {array.size} values are NaN or infinite; the checkpoint is damaged")


def _checked(
    array: np.ndarray, row: names.Row, shape: tuple[int, ...], dtype: Any, extra: int, where: str
) -> np.ndarray:
    """The tensor as it lies with us, in ``shape``; its first ``extra`` axes are the same with us."""
    want = (*shape[:extra], *row.layout.shape(shape[extra:]))
    if array.shape != want:
        raise InputError(f"{where} has shape {list(array.shape)}, the config says {list(want)}")
    if array.dtype != dtype:
        raise InputError(f"{where} is {array.dtype}, the config says {dtype}")
    check_finite(array, where)
    if extra:
        return np.stack([row.layout.ours(part, shape[extra:]) for part in array])
    return row.layout.ours(array, shape)
