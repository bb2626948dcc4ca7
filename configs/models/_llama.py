"""Llama 3 (arXiv 2407.21783) and SmolLM2 (arXiv 2502.02737), which is a Llama in its code."""

PLAIN = {
    "experts": None,
    "activation": "silu",
    "rope_scaling": None,
    "sliding": None,
    "unit_offset": False,
    "post_norms": False,
    "qkv_bias": False,
    "qk_norm": False,
    "scale_embedding": False,
    "query_scalar": None,
    "attention_cap": None,
    "logit_cap": None,
}
FAMILIES = {"llama": {"family": "llama", "norm_eps": 1e-5, **PLAIN}}


def _llama3(d_model, n_layers, n_heads, head_dim, d_ff, *, tied, factor):
    scaling = {"kind": "llama3", "factor": factor, "low": 1.0, "high": 4.0, "original_positions": 8192}
    return {
        "family": "llama", "vocab_size": 128256, "d_model": d_model, "n_layers": n_layers, "n_heads": n_heads,
        "n_kv_heads": 8, "head_dim": head_dim, "d_ff": d_ff, "rope_theta": 500000.0, "rope_scaling": scaling,
        "tied": tied, "max_positions": 131072,
    }  # fmt: skip


def _smollm2(d_model, n_layers, n_heads, n_kv_heads, d_ff, *, rope_theta):
    return {
        "family": "llama", "vocab_size": 49152, "d_model": d_model, "n_layers": n_layers, "n_heads": n_heads,
        "n_kv_heads": n_kv_heads, "head_dim": 64, "d_ff": d_ff, "rope_theta": rope_theta, "tied": True,
        "max_positions": 8192,
    }  # fmt: skip


MODELS = {
    "llama3.2-1b": _llama3(2048, 16, 32, 64, 8192, tied=True, factor=32.0),
    "llama3.2-3b": _llama3(3072, 28, 24, 128, 8192, tied=True, factor=32.0),
    "llama3.1-8b": _llama3(4096, 32, 32, 128, 14336, tied=False, factor=8.0),
    "smollm2-135m": _smollm2(576, 30, 9, 3, 1536, rope_theta=100000.0),
    "smollm2-360m": _smollm2(960, 32, 15, 5, 2560, rope_theta=100000.0),
    "smollm2-1.7b": _smollm2(2048, 24, 32, 32, 8192, rope_theta=130000.0),
}
