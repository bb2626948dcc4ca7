"""A decoder small enough for every property, with noise in every leaf."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

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
    """Noise in every leaf, biases and norms included, wide enough that attention is far from even."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(functools.partial(decoder.init, cfg=cfg), jax.random.key(0))

    def leaf(path, shape):
        noise = 0.35 * rng.normal(size=shape.shape) + path[-1].key.endswith("scale")
        return jnp.asarray(noise, shape.dtype)

    return jax.tree_util.tree_map_with_path(leaf, shapes)
