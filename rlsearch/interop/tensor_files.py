"""Tensors by name from one safetensors file, or from several with an index."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  makes NumPy know bfloat16
import numpy as np
import safetensors

from rlsearch.errors import InputError
from rlsearch.tokenization.hub_files import read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class TensorFiles(contextlib.ExitStack):
    """The tensors of a checkpoint directory; a context manager that keeps its files open.

    ``single`` is the name of the one file there is where there is no index.
    """

    def __init__(self, directory: Path, *, single: str = SINGLE):
        super().__init__()
        self._places = {}
        for path, listed in _files(directory, single).items():
            file = self._open(path)
            held = set(file.keys())
            for name in held if listed is None else listed:
                if name not in held:
                    raise InputError(f"{path}: no tensor {name!r}, which {INDEX} places there")
                self._places[name] = (path, file)

    def _open(self, path: Path):
        if not path.is_file():
            raise InputError(f"{path}: no such file; the checkpoint lacks its weights")
        try:
            return self.enter_context(safetensors.safe_open(path, framework="numpy"))
        except safetensors.SafetensorError as error:
            raise InputError(f"{path}: not a whole safetensors file ({error}); is it cut short?") from error

    @property
    def names(self) -> set[str]:
        """Every tensor's name."""
        return set(self._places)

    def read(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """One tensor as stored, or some of its rows; a tensor that has not as many rows comes whole."""
        path, file = self._places[name]
        try:
            if rows == slice(None):
                return file.get_tensor(name)
            part = file.get_slice(name)
            return part[rows] if part.get_shape()[:1] >= [rows.stop] else file.get_tensor(name)
        except (safetensors.SafetensorError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{path}: tensor {name!r} cannot be read ({error})") from error


_DTYPES = {"float32": "F32", "bfloat16": "BF16"}


def write(
    directory: Path,
    described: Mapping[str, tuple[tuple[int, ...], np.dtype]],
    pieces: Iterable[tuple[str, np.ndarray]],
    *,
    shard_bytes: int,
    single: str = SINGLE,
) -> None:
    """Writes safetensors as the data comes, one file or several with an index.

    Args:
      directory: where.
      described: shape and type of every tensor, in the order of ``pieces``.
      pieces: name and data, contiguous; a tensor may come in several runs of rows.
      shard_bytes: a file is closed before it gets larger than this, though it holds one tensor at least.
      single: the name of the file where there is only one.
    """
    files = _shards(described, shard_bytes)
    many, pieces = len(files) > 1, iter(pieces)
    titles = [f"model-{i:05}-of-{len(files):05}.safetensors" if many else single for i in range(1, len(files) + 1)]
    for title, held in zip(titles, files, strict=True):
        with (directory / title).open("wb") as file:
            file.write(_header(held, described))
            left = sum(_size(described[name]) for name in held)
            while left > 0:
                _, array = next(pieces)
                file.write(array.reshape(-1).view(np.uint8).data)
                left -= array.nbytes
    if many:
        index = {name: title for title, held in zip(titles, files, strict=True) for name in held}
        total = sum(map(_size, described.values()))
        content = {"metadata": {"total_size": total}, "weight_map": index}
        (directory / INDEX).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _shards(described, shard_bytes: int) -> list[list[str]]:
    files: list[list[str]] = [[]]
    size = 0
    for name, what in described.items():
        if files[-1] and size + _size(what) > shard_bytes:
            files.append([])
            size = 0
        files[-1].append(name)
        size += _size(what)
    return files


def _size(what: tuple[tuple[int, ...], np.dtype]) -> int:
    shape, dtype = what
    return math.prod(shape) * np.dtype(dtype).itemsize


def _header(held: list[str], described) -> bytes:
    """The length and the JSON that a safetensors file begins with, padded so that the data is aligned."""
    content: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in held:
        shape, dtype = described[name]
        end = at + _size(described[name])
        content[name] = {"dtype": _DTYPES[str(np.dtype(dtype))], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _files(directory: Path, single: str) -> dict[Path, list[str] | None]:
    if not (directory / INDEX).is_file():
        return {directory / single: None}
    files: dict[Path, list[str] | None] = {}
    for name, file in read_json(directory / INDEX).get("weight_map", {}).items():
        files.setdefault(directory / file, []).append(name)
    return files
