"""Gemma 2 (arXiv 2408.00118) and the text part of Gemma 3 (arXiv 2503.19786)."""

_SHARED = {
    "experts": None,
    "activation": "gelu_tanh",
    "rope_scaling": None,
    "norm_eps": 1e-6,
    "unit_offset": True,
    "post_norms": True,
    "qkv_bias": False,
    "scale_embedding": True,
    "tied": True,
}
FAMILIES = {
    "gemma2": {
        "family": "gemma2", **_SHARED, "qk_norm": False, "rope_theta": 10000.0, "attention_cap": 50.0,
        "logit_cap": 30.0,
    },
    "gemma3_text": {
        "family": "gemma3_text", **_SHARED, "qk_norm": True, "rope_theta": 1000000.0, "attention_cap": None,
        "logit_cap": None,
    },
}  # fmt: skip


def _gemma3(d_model, n_layers, n_heads, n_kv_heads, d_ff, *, window, **rest):
    return {
        "family": "gemma3_text", "d_model": d_model, "n_layers": n_layers, "n_heads": n_heads,
        "n_kv_heads": n_kv_heads, "head_dim": 256, "d_ff": d_ff, "query_scalar": 256.0,
        "sliding": {"window": window, "full_every": 6, "rope_theta": 10000.0}, **rest,
    }  # fmt: skip


MODELS = {
    "gemma3-1b": _gemma3(1152, 26, 4, 1, 6912, window=512, vocab_size=262144, max_positions=32768),
    "gemma3-4b": _gemma3(
        2560, 34, 8, 4, 10240, window=1024, vocab_size=262208, max_positions=131072,
        rope_scaling={"kind": "linear", "factor": 8.0, "low": None, "high": None, "original_positions": None},
    ),
}  # fmt: skip
