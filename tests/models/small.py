"""A decoder small enough for every property, with noise in every leaf."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from configs.models import FAMILIES
from rlsearch import config as configs
from rlsearch.models import decoder
from rlsearch.models.decoder import DecoderConfig, Params

SLIDING = {"window": 5, "full_every": 2, "rope_theta": 100.0}
EXTRA: dict[str, dict[str, Any]] = {  # what a family needs, in small
    "qwen3_moe": {"experts": {"count": 5, "per_token": 2, "d_ff": 12, "normalise": True}},
    "gemma2": {"sliding": SLIDING, "query_scalar": 9.0, "attention_cap": 2.0, "logit_cap": 3.0},
    "gemma3_text": {"sliding": {**SLIDING, "rope_theta": 20.0}, "query_scalar": 7.0},
}


def config(*, family: str = "qwen2", tied: bool = True, n_kv_heads: int = 2, **changes: Any) -> DecoderConfig:
    """Two layers of width 16; every axis divides over meshes of two devices an axis."""
    sizes = {
        "vocab_size": 32, "d_model": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": n_kv_heads, "head_dim": 6,
        "d_ff": 24, "rope_theta": 100.0, "norm_eps": 1e-6, "tied": tied, "max_positions": 128, "dtype": "float32",
        "param_dtype": "float32",
    }  # fmt: skip
    section = ConfigDict({**FAMILIES[family], **sizes, **EXTRA.get(family, {}), **changes})
    return configs.read(section, DecoderConfig, "model")


@functools.cache
def parameters(cfg: DecoderConfig, seed: int = 0) -> Params:
    """Noise in every leaf, biases and norms included, wide enough that attention is far from even."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(functools.partial(decoder.init, cfg=cfg), jax.random.key(0))

    def leaf(path, shape):
        centre = path[-1].key.endswith("scale") and not cfg.unit_offset
        return jnp.asarray(0.35 * rng.normal(size=shape.shape) + centre, shape.dtype)

    return jax.tree_util.tree_map_with_path(leaf, shapes)
