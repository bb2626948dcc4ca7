"""A Hugging Face directory as parameters of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlsearch.interop.hub_config import from_hub
from rlsearch.interop.stacking import parameters
from rlsearch.interop.tensor_files import TensorFiles, read_json
from rlsearch.models.decoder import DecoderConfig


def import_model(directory: Path) -> tuple[DecoderConfig, dict[str, Any]]:
    """Reads ``config.json`` and the safetensors beside it.

    Returns:
      The config, whose two types are the type of the stored tensors, and the parameters as NumPy arrays.

    Raises:
      InputError: an architecture that is not supported; a file that is missing or cut short; a tensor that is
        missing, left over, misshapen, of another type or not finite.
    """
    directory = Path(directory)
    cfg = from_hub(read_json(directory / "config.json"), where=str(directory / "config.json"))
    with TensorFiles(directory) as files:
        return cfg, parameters(
            cfg, have=files.names, read=files.read, column=lambda row: row.name, where=str(directory)
        )
