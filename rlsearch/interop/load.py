"""A Hugging Face directory as parameters of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlsearch.errors import InputError
from rlsearch.interop.hub_config import from_hub
from rlsearch.interop.names import shapes, unflatten
from rlsearch.interop.stacking import parameters
from rlsearch.interop.tensor_files import TensorFiles, read_json
from rlsearch.models.decoder import DecoderConfig
from rlsearch.tokenization.types import Tokenizer


def import_model(directory: Path, *, place: Callable[[Any], Any] | None = None) -> tuple[DecoderConfig, dict[str, Any]]:
    """Reads ``config.json`` and the safetensors beside it, one tensor in memory beside the parameters.

    Args:
      directory: where.
      place: gives the sharding of every parameter from their nested shapes, such as ``sharding.shard`` does; where
        given, each layer goes to the devices as soon as it is read.

    Returns:
      The config, whose two types are the type of the stored tensors, and the parameters as NumPy arrays, or as arrays
      laid out as ``place`` says.

    Raises:
      InputError: an architecture that is not supported; a file that is missing or cut short; a tensor that is
        missing, left over, misshapen, of another type or not finite.
    """
    directory = Path(directory)
    cfg = from_hub(read_json(directory / "config.json"), where=str(directory / "config.json"))
    shardings = None if place is None else place(unflatten(shapes(cfg)))
    with TensorFiles(directory) as files:
        return cfg, parameters(
            cfg, have=files.names, read=files.read, column=lambda row: row.name, where=str(directory),
            shardings=shardings,
        )  # fmt: skip


def check_vocabulary(tokenizer: Tokenizer, cfg: DecoderConfig, *, where: str) -> None:
    """Refuses a tokenizer that gives ids which the embedding has no row for.

    Raises:
      InputError: it has more ids than there are rows.
    """
    if tokenizer.vocab_size > cfg.vocab_size:
        raise InputError(
            f"{where}: the tokenizer has {tokenizer.vocab_size} ids but the embedding only {cfg.vocab_size} rows"
        )
