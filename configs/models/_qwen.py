"""Qwen2.5 (arXiv 2412.15115) and Qwen3 (arXiv 2505.09388)."""

from configs.models._llama import PLAIN

_SHARED = {"norm_eps": 1e-6, "rope_theta": 1000000.0, **PLAIN}
FAMILIES = {
    "qwen2": {"family": "qwen2", **_SHARED, "qkv_bias": True},
    "qwen3": {"family": "qwen3", **_SHARED, "qk_norm": True},
    "qwen3_moe": {"family": "qwen3_moe", **_SHARED, "qk_norm": True},
}


def _qwen2(d_model, n_layers, n_heads, n_kv_heads, d_ff, *, tied, max_positions, **rest):
    return {
        "family": "qwen2", "vocab_size": 151936 if tied else 152064, "d_model": d_model, "n_layers": n_layers,
        "n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_dim": d_model // n_heads, "d_ff": d_ff, "tied": tied,
        "max_positions": max_positions, **rest,
    }  # fmt: skip


def _qwen3(d_model, n_layers, n_heads, d_ff, *, tied, **rest):
    return {
        "family": "qwen3", "vocab_size": 151936, "d_model": d_model, "n_layers": n_layers, "n_heads": n_heads,
        "n_kv_heads": 8, "head_dim": 128, "d_ff": d_ff, "tied": tied, "max_positions": 40960, **rest,
    }  # fmt: skip


MODELS = {
    "qwen2.5-0.5b": _qwen2(896, 24, 14, 2, 4864, tied=True, max_positions=32768),
    "qwen2.5-1.5b": _qwen2(1536, 28, 12, 2, 8960, tied=True, max_positions=131072),
    "qwen2.5-3b": _qwen2(2048, 36, 16, 2, 11008, tied=True, max_positions=32768),
    "qwen2.5-7b": _qwen2(3584, 28, 28, 4, 18944, tied=False, max_positions=131072),
    "qwen2.5-14b": _qwen2(5120, 48, 40, 8, 13824, tied=False, max_positions=131072, norm_eps=1e-5),
    "qwen2.5-32b": _qwen2(5120, 64, 40, 8, 27648, tied=False, max_positions=131072, norm_eps=1e-5),
    "qwen3-0.6b": _qwen3(1024, 28, 16, 3072, tied=True),
    "qwen3-1.7b": _qwen3(2048, 28, 16, 6144, tied=True),
    "qwen3-4b": _qwen3(2560, 36, 32, 9728, tied=True),
    "qwen3-8b": _qwen3(4096, 36, 32, 12288, tied=False),
    "qwen3-14b": _qwen3(5120, 40, 40, 17408, tied=False),
    "qwen3-30b-a3b": _qwen3(
        2048, 48, 32, 6144, tied=False, family="qwen3_moe", n_kv_heads=4,
        experts={"count": 128, "per_token": 8, "d_ff": 768, "normalise": True},
    ),
}  # fmt: skip
