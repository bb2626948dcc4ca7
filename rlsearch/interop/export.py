"""Parameters of ours as a directory that transformers and vLLM load."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from rlsearch.errors import InputError
from rlsearch.interop import names
from rlsearch.interop.hub_config import generation, to_hub
from rlsearch.interop.load import import_model
from rlsearch.interop.stacking import tensors
from rlsearch.interop.tensor_files import SINGLE
from rlsearch.models.decoder import DecoderConfig
from rlsearch.tokenization import loading
from rlsearch.tokenization.hub_files import write_json
from rlsearch.tokenization.types import Tokenizer


def export_model(directory: Path, params: dict[str, Any], cfg: DecoderConfig, tokenizer: Tokenizer) -> None:
    """Writes config, weights and tokenizer, reads them back, and only then gives the directory its name.

    An earlier export of the same name is replaced; anything else there is left alone and refused.

    Raises:
      InputError: a parameter that the family has no place for, a tokenizer with more ids than the embedding has rows,
        or a directory that holds something else.
      RuntimeError: what was read back differs from what was written.
    """
    directory = Path(directory)
    if tokenizer.vocab_size > cfg.vocab_size:
        raise InputError(f"the tokenizer has {tokenizer.vocab_size} ids but the embedding only {cfg.vocab_size} rows")
    if directory.exists() and any(directory.iterdir()) and not (directory / SINGLE).is_file():
        raise InputError(f"{directory}: exists and is no earlier export (no {SINGLE}); name another directory")
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _write(partial, params, cfg, tokenizer)
        _compare(partial, params, cfg, tokenizer)
    except BaseException:
        shutil.rmtree(partial)
        raise
    if directory.exists():
        shutil.rmtree(directory)
    partial.rename(directory)


def _write(directory: Path, params: dict[str, Any], cfg: DecoderConfig, tokenizer: Tokenizer) -> None:
    save_file(dict(tensors(params, cfg)), directory / SINGLE, metadata={"format": "pt"})
    write_json(directory / "config.json", to_hub(cfg, tokenizer))
    write_json(directory / "generation_config.json", generation(tokenizer))
    tokenizer.save(directory)


def _compare(directory: Path, params: dict[str, Any], cfg: DecoderConfig, tokenizer: Tokenizer) -> None:
    read_cfg, read_params = import_model(directory)
    if dataclasses.replace(read_cfg, dtype=cfg.dtype) != cfg:
        raise RuntimeError(f"{directory}: reads back as {read_cfg}, was written as {cfg}")
    written = dict(names.flatten(params))
    for path, array in names.flatten(read_params):
        if array.tobytes() != np.asarray(written[path]).tobytes():
            raise RuntimeError(f"{directory}: {path} reads back differently from what was written")
    again = loading.load(directory)
    if _identity(again) != _identity(tokenizer):
        raise RuntimeError(f"{directory}: the tokenizer reads back differently from what was written")


def _identity(tokenizer: Tokenizer) -> tuple[int, int, tuple[int, ...], list[bytes]]:
    return tokenizer.vocab_size, tokenizer.pad_id, tokenizer.eos_ids, tokenizer.token_bytes()
