"""``config.json`` of transformers from a :class:`DecoderConfig`, and back."""

from __future__ import annotations

import math
from typing import Any

from rlsearch.errors import InputError, nearest
from rlsearch.models.architecture import FAMILIES, DecoderConfig, Experts, RopeScaling, Sliding
from rlsearch.tokenization.types import Tokenizer

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}
CLASSIFIERS = {
    family: name.replace("ForCausalLM", "ForSequenceClassification") for family, name in ARCHITECTURES.items()
} | {"gemma3_text": "Gemma3TextForSequenceClassification"}
GEMMA = ("gemma2", "gemma3_text")

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
_CAPS = {"logit_cap": "final_logit_softcapping", "attention_cap": "attn_logit_softcapping"}
_EXPERTS = {
    "count": "num_experts",
    "per_token": "num_experts_per_tok",
    "d_ff": "moe_intermediate_size",
    "normalise": "norm_topk_prob",
}
_ENDS = {  # of every kind of scaled rotary positions: where the scaling ends
    "llama3": {
        "low": "low_freq_factor",
        "high": "high_freq_factor",
        "original_positions": "original_max_position_embeddings",
    },
    "linear": {},
    "yarn": {"low": "beta_slow", "high": "beta_fast", "original_positions": "original_max_position_embeddings"},
}
_YARN = {"beta_slow": 1.0, "beta_fast": 32.0}  # what transformers takes where a config does not say

# What this decoder cannot do otherwise; a config that says anything else is refused.
_FIXED = {
    "use_sliding_window": False,
    "mlp_bias": False,
    "attention_bias": False,
    "use_bidirectional_attention": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "partial_rotary_factor": 1.0,
}


def to_hub(cfg: DecoderConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of ``config.json``, with the keys for rotary positions and types of transformers 4 and 5 both."""
    content: dict[str, Any] = {
        "architectures": [ARCHITECTURES[cfg.family]],
        "model_type": cfg.family,
        **{theirs: getattr(cfg, ours) for ours, theirs in _FIELDS.items()},
        "head_dim": cfg.head_dim,
        **_rope(cfg),
        "torch_dtype": cfg.param_dtype,
        "dtype": cfg.param_dtype,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": cfg.d_model**-0.5,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_ids[0] if len(tokenizer.eos_ids) == 1 else list(tokenizer.eos_ids),
        "pad_token_id": tokenizer.pad_id,
    }
    if cfg.family in GEMMA:
        return {**content, **_gemma(cfg)}
    content["hidden_act"] = "silu"
    if cfg.family == "llama":
        return {**content, "mlp_bias": False, "pretraining_tp": 1}
    content |= {"use_sliding_window": False, "sliding_window": None, "max_window_layers": cfg.n_layers}
    if cfg.family == "qwen3_moe":
        experts = {theirs: getattr(cfg.experts, ours) for ours, theirs in _EXPERTS.items()}
        return {**content, **experts, "decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": False}
    return {**content, "layer_types": ["full_attention"] * cfg.n_layers}


def _gemma(cfg: DecoderConfig) -> dict[str, Any]:
    kinds = ["sliding_attention" if cfg.slides(layer) else "full_attention" for layer in range(cfg.n_layers)]
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": int(cfg.query_scalar),
        "sliding_window": cfg.sliding.window,
        "sliding_window_pattern": cfg.sliding.full_every,
        "layer_types": kinds,
        **{theirs: getattr(cfg, ours) for ours, theirs in _CAPS.items()},
    }


def _rope(cfg: DecoderConfig) -> dict[str, Any]:
    scaling = cfg.rope_scaling
    extra: dict[str, Any] = {"rope_type": "default"}
    if scaling is not None:
        extra = {"rope_type": scaling.kind, "factor": scaling.factor}
        extra |= {theirs: getattr(scaling, ours) for ours, theirs in _ENDS[scaling.kind].items()}
    whole: dict[str, Any] = {**extra, "rope_theta": cfg.rope_theta}
    found = {"rope_theta": cfg.rope_theta, "rope_scaling": extra if scaling else None, "rope_parameters": whole}
    if cfg.family != "gemma3_text":
        return found
    local = {"rope_type": "default", "rope_theta": cfg.sliding.rope_theta}
    found["rope_parameters"] = {"full_attention": whole, "sliding_attention": local}
    return {**found, "rope_local_base_freq": cfg.sliding.rope_theta}


def generation(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of ``generation_config.json``: where generation ends."""
    ends = list(tokenizer.eos_ids)
    return {"eos_token_id": ends[0] if len(ends) == 1 else ends, "pad_token_id": tokenizer.pad_id}


def from_hub(content: dict[str, Any], *, where: str) -> DecoderConfig:
    """Reads ``config.json``; activations get the type that the parameters are stored in.

    Raises:
      InputError: an architecture, activation, rope or bias that the decoder cannot do, or a missing field.
    """
    if content.get("model_type") == "gemma3":
        content = _text_part(content)
    if "num_local_experts" in content:  # what transformers 5 calls them
        content = {"num_experts": content["num_local_experts"], **content}
    family = content.get("model_type")
    if family not in ARCHITECTURES:
        raise InputError(f"{where}: model_type {family!r} is not supported{nearest(str(family), ARCHITECTURES)}")
    if content.get("architectures", [ARCHITECTURES[family]]) != [ARCHITECTURES[family]]:
        raise InputError(f"{where}: architectures is {content['architectures']}, needs [{ARCHITECTURES[family]!r}]")
    activation = {"hidden_activation": "gelu_pytorch_tanh"} if family in GEMMA else {"hidden_act": "silu"}
    for key, value in {**_FIXED, **activation}.items():
        if content.get(key) not in (None, value):
            raise InputError(f"{where}: {key} is {content[key]!r}; only {value!r} is supported for {family}")
    dtype = content.get("dtype", content.get("torch_dtype"))
    if dtype not in ("float32", "bfloat16"):
        raise InputError(f"{where}: dtype is {dtype!r}; only float32 and bfloat16 are supported")
    needed = [*_FIELDS.values(), *(_EXPERTS.values() if family == "qwen3_moe" else ())]
    needed += ["sliding_window", "query_pre_attn_scalar"] if family in GEMMA else []
    missing = [key for key in needed if key not in content and key != "tie_word_embeddings"]
    if missing:
        raise InputError(f"{where}: missing {', '.join(missing)}")
    fields: dict[str, Any] = {ours: content[theirs] for ours, theirs in _FIELDS.items() if theirs in content}
    fields = {"tied": family in GEMMA, **FAMILIES[family], **_read_rope(content, family, where), **fields}
    if family == "qwen3_moe":
        fields["experts"] = Experts(**{ours: content[theirs] for ours, theirs in _EXPERTS.items()})
    if family in GEMMA:
        local = fields.pop("local_theta")
        fields["sliding"] = Sliding(content["sliding_window"], _full_every(content, family, where), local)
        fields["query_scalar"] = float(content["query_pre_attn_scalar"])
        caps = {ours: content.get(theirs) for ours, theirs in _CAPS.items()}
        fields |= {ours: None if cap is None else float(cap) for ours, cap in caps.items()}
    head_dim = content.get("head_dim") or content["hidden_size"] // content["num_attention_heads"]
    return DecoderConfig(**fields, family=family, head_dim=head_dim, dtype=dtype, param_dtype=dtype)


def trunk_from_hub(content: dict[str, Any], *, where: str) -> DecoderConfig:
    """Reads the ``config.json`` of a sequence classifier: its trunk, as a model whose head is tied for want of one.

    Raises:
      InputError: another architecture, or a trunk that ``from_hub`` refuses.
    """
    family = content.get("model_type")
    wanted = CLASSIFIERS.get(family)
    if wanted is not None and content.get("architectures") != [wanted]:
        raise InputError(f"{where}: architectures is {content.get('architectures')}, a reward model needs [{wanted!r}]")
    causal = {"architectures": [ARCHITECTURES.get(family)], "tie_word_embeddings": True}
    return from_hub({**content, **causal}, where=where)


# What the configuration class of Gemma 3's text part fills in where its published files say nothing.
_GEMMA3 = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 131072,
    "query_pre_attn_scalar": 256,
    "hidden_activation": "gelu_pytorch_tanh",
}


def _text_part(content: dict[str, Any]) -> dict[str, Any]:
    """The configuration of the text model inside one that sees images too."""
    text = {key: value for key, value in (content.get("text_config") or {}).items() if value is not None}
    outer = {key: content[key] for key in ("dtype", "torch_dtype") if key in content}
    thetas = {} if "rope_parameters" in text else {"rope_theta": 1000000.0, "rope_local_base_freq": 10000.0}
    return {**_GEMMA3, **thetas, **outer, **text, "model_type": "gemma3_text"}


def _full_every(content: dict[str, Any], family: str, where: str) -> int:
    """How often a layer without a window comes, from the kinds of all layers or the pattern's length."""
    kinds = content.get("layer_types")
    if kinds is None:
        return content.get("sliding_window_pattern", 2 if family == "gemma2" else 6)
    every = kinds.index("full_attention") + 1 if "full_attention" in kinds else len(kinds) + 1
    wanted = ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(len(kinds))]
    if kinds != wanted or len(kinds) != content["num_hidden_layers"] or every < 2:
        raise InputError(f"{where}: layer_types is {kinds}; only every n-th layer of all may be a full_attention")
    return content.get("sliding_window_pattern", every) if every > len(kinds) else every


def _read_rope(content: dict[str, Any], family: str, where: str) -> dict[str, Any]:
    """rope_theta and rope_scaling, and for Gemma the theta of layers with a window as ``local_theta``."""
    new, old = content.get("rope_parameters") or {}, content.get("rope_scaling") or {}
    local = {}
    if "full_attention" in new:
        new, local = new["full_attention"], new.get("sliding_attention") or {}
    for key, found in (("rope_parameters", new), ("rope_scaling", old)):
        kind = found.get("rope_type", found.get("type", "default"))
        if kind not in ("default", *_ENDS):
            raise InputError(f"{where}: {key}: rope_type is {kind!r}; only default, {', '.join(_ENDS)} are supported")
        if kind == "yarn":
            _check_yarn(found, f"{where}: {key}")
        needed = {"factor", *_ENDS[kind].values()} - _YARN.keys() if kind != "default" else set()
        if missing := needed - {name for name, value in found.items() if value is not None}:
            raise InputError(f"{where}: {key}: rope_type {kind!r} misses {', '.join(sorted(missing))}")
    if local.get("rope_type", "default") != "default":
        raise InputError(f"{where}: rope_parameters of sliding_attention: only rope_type 'default' is supported")
    theta = _one(new.get("rope_theta"), content.get("rope_theta"), where, "rope_theta")
    if theta is None:
        raise InputError(f"{where}: no rope_theta; the default differs between releases, so state it")
    scalings = [_scaling(part) for part in (new, old) if part]
    if len(set(scalings)) > 1:
        raise InputError(f"{where}: rope_scaling is {old} but rope_parameters is {new}")
    found = {"rope_theta": float(theta), "rope_scaling": scalings[0] if scalings else None}
    if family in GEMMA:
        second = _one(local.get("rope_theta"), content.get("rope_local_base_freq"), where, "rope_local_base_freq")
        if second is None and family == "gemma3_text":
            raise InputError(f"{where}: no rope_local_base_freq; the default differs between releases, so state it")
        found["local_theta"] = float(theta if family == "gemma2" else second)
    return found


def _scaling(found: dict[str, Any]) -> RopeScaling | None:
    kind = found.get("rope_type", found.get("type", "default"))
    if kind == "default":
        return None
    values = {**_YARN, **{key: value for key, value in found.items() if value is not None}}
    ends = {ours: values[theirs] for ours, theirs in _ENDS[kind].items()}
    return RopeScaling(kind, float(found["factor"]), **{**dict.fromkeys(_ENDS["llama3"]), **ends})


def _check_yarn(found: dict[str, Any], where: str) -> None:
    """Refuses what changes YaRN's numbers and the decoder does not do."""
    usual = 0.1 * math.log(max(found.get("factor") or 1.0, 1.0)) + 1.0
    given = found.get("attention_factor")
    if given is not None and abs(given - usual) > 1e-6:
        raise InputError(f"{where}: attention_factor is {given}; only 0.1 log(factor) + 1, {usual:.6f}, is supported")
    for key, only in (("mscale", None), ("mscale_all_dim", None), ("truncate", True)):
        if found.get(key, only) not in (only, None):
            raise InputError(f"{where}: {key} is {found[key]!r}, which the decoder cannot do with rope_type 'yarn'")


def _one(new: float | None, old: float | None, where: str, name: str) -> float | None:
    if new is not None and old is not None and new != old:
        raise InputError(f"{where}: {name} is {old} but rope_parameters.{name} is {new}")
    return old if new is None else new
