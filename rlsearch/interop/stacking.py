"""Between our stacked parameters and one named tensor a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from rlsearch.errors import InputError, nearest
from rlsearch.interop import names
from rlsearch.models.decoder import DecoderConfig


def tensors(params: dict[str, Any], cfg: DecoderConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor of a checkpoint by its Hugging Face name, contiguous.

    Raises:
      InputError: a parameter is missing, unknown, misshapen, of another type than the config says, or not finite.
    """
    wanted, given = names.shapes(cfg), dict(names.flatten(params))
    for path in given:
        if path not in wanted:
            raise InputError(f"parameter {path}: family {cfg.family!r} has no place for it{nearest(path, wanted)}")
    for row in names.rows(cfg):
        if row.path not in given:
            raise InputError(f"parameter {row.path}: missing; needs shape {wanted[row.path].shape}")
        array = np.asarray(jax.device_get(given[row.path]))
        want = wanted[row.path]
        if array.shape != want.shape or array.dtype != want.dtype:
            raise InputError(
                f"parameter {row.path}: is {array.dtype} {list(array.shape)}, "
                f"the config says {want.dtype} {list(want.shape)}"
            )
        check_finite(array, f"parameter {row.path}")
        for layer, part in enumerate(array) if row.stacked else [(0, array)]:
            yield row.name.format(layer=layer), row.layout.theirs(part)


def parameters(
    cfg: DecoderConfig,
    *,
    have: Iterable[str],
    read: Callable[[str], np.ndarray],
    column: Callable[[names.Row], str],
    where: str,
) -> dict[str, Any]:
    """Our parameters from named tensors, one layer in memory beside them.

    Args:
      cfg: the model; its ``param_dtype`` is the type that tensors must have.
      have: the names there are.
      read: gives the tensor of a name, laid out as Hugging Face does.
      column: the column of the table that ``have`` uses, with ``{layer}`` in it.
      where: the file or directory, for messages.

    Raises:
      InputError: a tensor is missing, left over, misshapen, of another type, or not finite.
    """
    left = set(have)
    shapes = names.shapes(cfg)
    leaves = {}
    for row in names.rows(cfg):
        want = shapes[row.path]
        leaf = np.empty(want.shape, want.dtype)
        for layer in range(cfg.n_layers if row.stacked else 1):
            name = column(row).format(layer=layer)
            if name not in left:
                raise InputError(f"{where}: no tensor {name!r}; a {cfg.family} model of {cfg.n_layers} layers needs it")
            place = leaf[layer] if row.stacked else leaf
            place[...] = _checked(read(name), row, place, f"{where}: tensor {name!r}")
            left.remove(name)
        leaves[row.path] = leaf
    if left:
        raise InputError(
            f"{where}: {len(left)} tensors have no place in a {cfg.family} model of {cfg.n_layers} layers"
            f"{' with a tied head' if cfg.tied else ''}: {', '.join(sorted(left)[:5])}"
        )
    return names.unflatten(leaves)


def check_finite(array: np.ndarray, where: str) -> None:
    """Refuses an array with a NaN or an infinity."""
    bad = int(array.size - np.isfinite(array).sum())
    if bad:
        raise InputError(f"{where}: {bad} of {array.size} values are NaN or infinite; the checkpoint is damaged")


def _checked(array: np.ndarray, row: names.Row, place: np.ndarray, where: str) -> np.ndarray:
    want = row.layout.shape(place.shape)
    if array.shape != want:
        raise InputError(f"{where} has shape {list(array.shape)}, the config says {list(want)}")
    if array.dtype != place.dtype:
        raise InputError(f"{where} is {array.dtype}, the config says {place.dtype}")
    check_finite(array, where)
    return row.layout.ours(array, place.shape)
