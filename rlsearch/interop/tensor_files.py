"""Tensors by name from one safetensors file, or from several with an index."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  makes NumPy know bfloat16
import numpy as np
import safetensors

from rlsearch.errors import InputError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
      InputError: no such file, or no JSON object in it.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a directory in Hugging Face format")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); is the file cut short?") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, needs a JSON object")
    return content


class TensorFiles(contextlib.ExitStack):
    """The tensors of a checkpoint directory; a context manager that keeps its files open."""

    def __init__(self, directory: Path):
        super().__init__()
        self._places = {}
        for path, listed in _files(directory).items():
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

    def read(self, name: str) -> np.ndarray:
        """One tensor, as stored."""
        path, file = self._places[name]
        try:
            return file.get_tensor(name)
        except (safetensors.SafetensorError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: tensor {name!r} cannot be read ({error})") from error


def _files(directory: Path) -> dict[Path, list[str] | None]:
    if not (directory / INDEX).is_file():
        return {directory / SINGLE: None}
    files: dict[Path, list[str] | None] = {}
    for name, file in read_json(directory / INDEX).get("weight_map", {}).items():
        files.setdefault(directory / file, []).append(name)
    return files
