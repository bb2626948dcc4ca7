"""``config.json`` of transformers from a :class:`DecoderConfig`, and back."""

from __future__ import annotations

from typing import Any

from rlsearch.errors import InputError, nearest
from rlsearch.models.decoder import DecoderConfig
from rlsearch.tokenization.types import Tokenizer

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}

_FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "d_ff": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "max_positions": "max_position_embeddings",
    "tied": "tie_word_embeddings",
}

# What this decoder cannot do otherwise; a config that says anything else is refused.
_FIXED = {
    "hidden_act": "silu",
    "rope_scaling": None,
    "use_sliding_window": False,
    "mlp_bias": False,
    "attention_bias": False,
}


def to_hub(cfg: DecoderConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of ``config.json``, with the keys for rotary positions and types of transformers 4 and 5 both."""
    content: dict[str, Any] = {
        "architectures": [ARCHITECTURES[cfg.family]],
        "model_type": cfg.family,
        **{theirs: getattr(cfg, ours) for ours, theirs in _FIELDS.items()},
        "head_dim": cfg.head_dim,
        "hidden_act": "silu",
        "rope_theta": cfg.rope_theta,
        "rope_scaling": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": cfg.rope_theta},
        "torch_dtype": cfg.param_dtype,
        "dtype": cfg.param_dtype,
        "attention_dropout": 0.0,
        "initializer_range": cfg.d_model**-0.5,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_ids[0] if len(tokenizer.eos_ids) == 1 else list(tokenizer.eos_ids),
        "pad_token_id": tokenizer.pad_id,
    }
    if cfg.family == "qwen2":
        layers = {"max_window_layers": cfg.n_layers, "layer_types": ["full_attention"] * cfg.n_layers}
        return {**content, "use_sliding_window": False, "sliding_window": None, **layers}
    return {**content, "attention_bias": False, "mlp_bias": False, "pretraining_tp": 1}


def generation(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of ``generation_config.json``: where generation ends."""
    ends = list(tokenizer.eos_ids)
    return {"eos_token_id": ends[0] if len(ends) == 1 else ends, "pad_token_id": tokenizer.pad_id}


def from_hub(content: dict[str, Any], *, where: str) -> DecoderConfig:
    """Reads ``config.json``; activations get the type that the parameters are stored in.

    Raises:
      InputError: an architecture, activation, rope or bias that the decoder cannot do, or a missing field.
    """
    family = content.get("model_type")
    if family not in ARCHITECTURES:
        raise InputError(f"{where}: model_type {family!r} is not supported{nearest(str(family), ARCHITECTURES)}")
    if content.get("architectures", [ARCHITECTURES[family]]) != [ARCHITECTURES[family]]:
        raise InputError(f"{where}: architectures is {content['architectures']}, needs [{ARCHITECTURES[family]!r}]")
    for key, value in _FIXED.items():
        if content.get(key, value) != value:
            raise InputError(f"{where}: {key} is {content[key]!r}; only {value!r} is supported for {family}")
    dtype = content.get("dtype", content.get("torch_dtype"))
    if dtype not in ("float32", "bfloat16"):
        raise InputError(f"{where}: dtype is {dtype!r}; only float32 and bfloat16 are supported")
    missing = [key for key in _FIELDS.values() if key not in content and key != "tie_word_embeddings"]
    if missing:
        raise InputError(f"{where}: missing {', '.join(missing)}")
    fields = {ours: content[theirs] for ours, theirs in _FIELDS.items() if theirs in content}
    heads = content.get("head_dim") or content["hidden_size"] // content["num_attention_heads"]
    return DecoderConfig(
        **{"tied": False, **fields},
        family=family, head_dim=heads, rope_theta=_theta(content, where), qkv_bias=family == "qwen2",
        dtype=dtype, param_dtype=dtype,
    )  # fmt: skip


def _theta(content: dict[str, Any], where: str) -> float:
    rope = content.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        raise InputError(f"{where}: rope_type is {rope['rope_type']!r}; only 'default' is supported")
    values = [place["rope_theta"] for place in (rope, content) if "rope_theta" in place]
    if not values:
        raise InputError(f"{where}: no rope_theta; the default differs between releases, so state it")
    if len(set(values)) > 1:
        raise InputError(f"{where}: rope_theta is {values[1]} but rope_parameters.rope_theta is {values[0]}")
    return float(values[0])
