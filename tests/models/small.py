"""A decoder small enough for every property, with noise in every leaf."""

from __future__ import annotations

import functools

import jax

from rlsearch.models import decoder
from rlsearch.models.decoder import DecoderConfig, Params


def config(*, family: str = "qwen2", tied: bool = True, n_kv_heads: int = 2) -> DecoderConfig:
    """Two layers of width 16; every axis divides over meshes of two devices an axis."""
    return DecoderConfig(
        family=family, vocab_size=32, d_model=16, n_layers=2, n_heads=4, n_kv_heads=n_kv_heads, head_dim=6, d_ff=24,
        rope_theta=100.0, norm_eps=1e-6, qkv_bias=family == "qwen2", tied=tied, max_positions=128, dtype="float32",
        param_dtype="float32",
    )  # fmt: skip


@functools.cache
def parameters(cfg: DecoderConfig, seed: int = 0) -> Params:
    """Fresh parameters and noise, so that biases and norms take part; wide enough that attention is far from even."""
    params = decoder.init(jax.random.key(seed), cfg)
    leaves, shape = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    noisy = [
        leaf + 0.2 * jax.random.normal(key, leaf.shape, leaf.dtype) for leaf, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(shape, noisy)
