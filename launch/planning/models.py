"""Which model a config trains, without its weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ml_collections import ConfigDict

from configs import models
from rlsearch import config as configs
from rlsearch.assemble import ScratchPolicy, read_policy
from rlsearch.errors import InputError, nearest
from rlsearch.interop.gguf import import_gguf, smollm2_path
from rlsearch.interop.hub_config import from_hub
from rlsearch.models.decoder import DecoderConfig
from rlsearch.tokenization.hub_files import read_json


def of_config(config: ConfigDict, name: str | None) -> DecoderConfig:
    """The model of ``config.policy``, or that of ``configs/models`` by ``name`` where one is given.

    Parameters are float32, as training keeps them; activations have the policy's type.

    Raises:
      InputError: no such model.
    """
    if name is not None:
        if name not in models.MODELS:
            raise InputError(f"--model={name}: no such row in configs/models{nearest(name, models.MODELS)}")
        section = models.model(name, param_dtype="float32")
        return configs.read(section, DecoderConfig, f"configs.models.{name}")
    spec = read_policy(config.policy)
    if isinstance(spec, ScratchPolicy):
        fields = ConfigDict({**spec.model, "vocab_size": spec.vocab_size})
        return configs.read(fields, DecoderConfig, "config.policy.model")
    if hasattr(spec, "path"):
        file = Path(spec.path) / "config.json"
        return replace(from_hub(read_json(file), where=str(file)), dtype=spec.dtype, param_dtype="float32")
    return replace(import_gguf(smollm2_path())[0], dtype=spec.dtype)
