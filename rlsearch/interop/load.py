"""A Hugging Face directory as parameters of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rlsearch.errors import InputError
from rlsearch.interop.hub_config import from_hub, trunk_from_hub
from rlsearch.interop.names import shapes, unflatten
from rlsearch.interop.stacking import check_finite, parameters
from rlsearch.interop.tensor_files import TensorFiles
from rlsearch.models.decoder import DecoderConfig
from rlsearch.tokenization.hub_files import read_json
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
    content, cfg = read_json(directory / "config.json"), read_config(directory)
    names_there = _inside if content.get("model_type") == "gemma3" else lambda names: {name: name for name in names}
    shardings = None if place is None else place(unflatten(shapes(cfg)))
    with TensorFiles(directory) as files:
        there = names_there(files.names)
        return cfg, parameters(
            cfg, have=there, read=lambda name, rows: files.read(there[name], rows), column=lambda row: row.name,
            where=str(directory), shardings=shardings,
        )  # fmt: skip


def read_config(directory: Path) -> DecoderConfig:
    """The architecture in ``config.json``.

    Raises:
      InputError: it is missing, or an architecture that is not supported.
    """
    return from_hub(read_json(directory / "config.json"), where=str(directory / "config.json"))


SCORE = "score.weight"


def import_reward_model(directory: Path) -> tuple[DecoderConfig, dict[str, Any]]:
    """Reads a ``*ForSequenceClassification`` of one label: a trunk, and its head as ``models.value`` has it.

    Returns:
      The trunk's config, and the parameters as NumPy arrays, with the head under ``value``; its bias is 0.

    Raises:
      InputError: what ``import_model`` refuses, another architecture, or a head that is missing or of several labels.
    """
    directory = Path(directory)
    cfg = trunk_from_hub(read_json(directory / "config.json"), where=str(directory / "config.json"))
    with TensorFiles(directory) as files:
        if SCORE not in files.names:
            raise InputError(f"{directory}: no tensor {SCORE!r}; a reward model has its head there")
        params = parameters(
            cfg, have=files.names - {SCORE}, read=files.read, column=lambda row: row.name, where=str(directory)
        )
        kernel = files.read(SCORE)
    if kernel.shape != (1, cfg.d_model) or str(kernel.dtype) != cfg.param_dtype:
        raise InputError(
            f"{directory}: tensor {SCORE!r} is {kernel.dtype} {list(kernel.shape)}; a reward model of one label needs"
            f" {cfg.param_dtype} {[1, cfg.d_model]}"
        )
    check_finite(kernel, f"{directory}: tensor {SCORE!r}")
    return cfg, {**params, "value": {"kernel": kernel[0], "bias": np.zeros(1, kernel.dtype)}}


# Gemma 3 with images: what the text model's names begin with, in two generations of files, and what is left out.
_TEXT = (
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)
_IMAGES = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")


def _inside(names: Iterable[str]) -> dict[str, str]:
    """The text model's tensors by the names that they have where it stands alone."""
    found = {}
    for name in names:
        if not name.startswith(_IMAGES):
            new = next((new + name.removeprefix(old) for old, new in _TEXT if name.startswith(old)), name)
            found[new] = name
    return found


def check_vocabulary(tokenizer: Tokenizer, cfg: DecoderConfig, *, where: str) -> None:
    """Refuses a tokenizer that gives ids which the embedding has no row for.

    Raises:
      InputError: it has more ids than there are rows.
    """
    if tokenizer.vocab_size > cfg.vocab_size:
        raise InputError(
            f"{where}: the tokenizer has {tokenizer.vocab_size} ids but the embedding only {cfg.vocab_size} rows"
        )
