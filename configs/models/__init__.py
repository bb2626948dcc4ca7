"""Released models as rows: ``model("qwen2.5-7b")`` is the section of a config that describes that architecture.

A row states what differs between the models of a family; ``FAMILIES`` states what they share. Facts are those of each
model's ``config.json``. Another model of a known family is another row.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from configs.models import _gemma, _llama, _qwen

FAMILIES: dict[str, dict[str, Any]] = {**_llama.FAMILIES, **_qwen.FAMILIES, **_gemma.FAMILIES}
MODELS: dict[str, dict[str, Any]] = {**_llama.MODELS, **_qwen.MODELS, **_gemma.MODELS}


def model(name: str, **changes: Any) -> ConfigDict:
    """The section of a model by its name, such as ``qwen3-4b``; ``dtype="float32"`` changes a value."""
    if name not in MODELS:
        raise KeyError(f"no model {name!r} in configs/models; there are: {', '.join(MODELS)}")
    row = MODELS[name]
    return ConfigDict({**FAMILIES[row["family"]], "dtype": "bfloat16", "param_dtype": "bfloat16", **row, **changes})
