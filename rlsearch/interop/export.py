"""Parameters of ours as a directory that transformers and vLLM load."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rlsearch.errors import InputError
from rlsearch.interop import stacking, tensor_files
from rlsearch.interop.hub_config import from_hub, generation, to_hub
from rlsearch.interop.load import check_vocabulary
from rlsearch.interop.tensor_files import INDEX, SINGLE
from rlsearch.models.decoder import DecoderConfig
from rlsearch.tokenization import loading
from rlsearch.tokenization.hub_files import read_json, write_json
from rlsearch.tokenization.types import Tokenizer


def export_model(
    directory: Path,
    params: dict[str, Any],
    cfg: DecoderConfig,
    tokenizer: Tokenizer,
    *,
    vocab_size: int | None = None,
    shard_bytes: int = 5 << 30,
) -> None:
    """Writes config, weights and tokenizer, reads them back, and only then gives the directory its name.

    An earlier export of the same name is replaced; anything else there is left alone and refused. No more than a tensor
    of a layer is in host memory beside the parameters.

    Args:
      directory: where.
      params: the policy's, in host memory or on devices; a critic's head among them is left out.
      cfg: their architecture.
      tokenizer: saved beside them.
      vocab_size: how many rows of the embedding and the head to keep, for those that were padded; None keeps all.
      shard_bytes: weights that are larger are written as several files with an index.

    Raises:
      InputError: a parameter that the family has no place for, a tokenizer with more ids than the embedding has rows,
        or a directory that holds something else.
      RuntimeError: what was read back differs from what was written.
    """
    directory = Path(directory)
    if vocab_size is not None and vocab_size > cfg.vocab_size:
        raise InputError(f"{directory}: cannot keep {vocab_size} rows of an embedding of {cfg.vocab_size}")
    written = dataclasses.replace(cfg, vocab_size=vocab_size or cfg.vocab_size)
    check_vocabulary(tokenizer, written, where=str(directory))
    with whole(directory, earlier=(SINGLE, INDEX)) as partial:
        data = stacking.pieces(params, cfg, vocab_size=vocab_size)
        tensor_files.write(partial, stacking.described(written), data, shard_bytes=shard_bytes)
        write_json(partial / "config.json", to_hub(written, tokenizer))
        write_json(partial / "generation_config.json", generation(tokenizer))
        tokenizer.save(partial)
        _compare(partial, stacking.pieces(params, cfg, vocab_size=vocab_size), written, tokenizer)


@contextmanager
def whole(directory: Path, *, earlier: Sequence[str]) -> Iterator[Path]:
    """A directory to write into, which gets the name ``directory`` once all went well, and is removed otherwise.

    One that is there already is replaced where it holds one of the files ``earlier``.

    Raises:
      InputError: it holds something else.
    """
    if directory.exists() and any(directory.iterdir()) and not any((directory / f).is_file() for f in earlier):
        raise InputError(f"{directory}: exists and is no earlier export (no {earlier[0]}); name another directory")
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial)
        raise
    if directory.exists():
        shutil.rmtree(directory)
    partial.rename(directory)


def _compare(directory: Path, pieces: Iterable[tuple[str, np.ndarray]], cfg: DecoderConfig, tokenizer: Tokenizer):
    """Reads everything back."""
    read = from_hub(read_json(directory / "config.json"), where=str(directory / "config.json"))
    if dataclasses.replace(read, dtype=cfg.dtype) != cfg:
        raise RuntimeError(f"{directory}: reads back as {read}, was written as {cfg}")
    described = stacking.described(cfg)
    with tensor_files.TensorFiles(directory) as files:
        if files.names != set(described):
            raise RuntimeError(f"{directory}: other tensors read back than were written")
        at = dict.fromkeys(described, 0)
        for name, array in pieces:
            start, at[name] = at[name], at[name] + len(array)
            if files.read(name, slice(start, at[name])).tobytes() != array.tobytes():
                raise RuntimeError(f"{directory}: {name} reads back differently from what was written")
    again = loading.load(directory)
    if _identity(again) != _identity(tokenizer):
        raise RuntimeError(f"{directory}: the tokenizer reads back differently from what was written")


def _identity(tokenizer: Tokenizer) -> tuple[int, int, tuple[int, ...], list[bytes]]:
    return tokenizer.vocab_size, tokenizer.pad_id, tokenizer.eos_ids, tokenizer.token_bytes()
