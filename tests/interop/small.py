"""Small models with random weights, and tokenizers that fit them."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from configs.models import FAMILIES
from rlsearch import config as configs
from rlsearch.interop.names import shapes, unflatten
from rlsearch.models import decoder
from rlsearch.models.decoder import DecoderConfig
from rlsearch.tokenization import spm
from rlsearch.tokenization.tags import TAGS
from tests.tokenization.names import COMMON, names, sentences

NAMES = names(60, seed=0)


@functools.cache
def tokenizer() -> spm.SentencePieceTokenizer:
    lines = sentences(200, seed=1, names=NAMES)
    return spm.train(lines, whole_words=[*NAMES, *COMMON], vocab_size=700, tags=TAGS)


EXTRA = {
    "llama": {"rope_scaling": {"kind": "llama3", "factor": 4.0, "low": 1.0, "high": 4.0, "original_positions": 64}},
    "qwen3_moe": {"experts": {"count": 6, "per_token": 2, "d_ff": 20, "normalise": True}},
    "gemma2": {"sliding": {"window": 9, "full_every": 2, "rope_theta": 1000.0}, "query_scalar": 10.0},
    "gemma3_text": {
        "sliding": {"window": 9, "full_every": 3, "rope_theta": 100.0}, "query_scalar": 14.0, "n_layers": 4,
        "rope_scaling": {"kind": "linear", "factor": 2.0, "low": None, "high": None, "original_positions": None},
    },
}  # fmt: skip


def config(family: str, *, tied: bool, dtype: str, **changes: Any) -> DecoderConfig:
    """Two layers or four, four query and two key/value heads, no two axes of one size."""
    sizes = {
        "vocab_size": tokenizer().vocab_size, "d_model": 48, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2,
        "head_dim": 12, "d_ff": 80, "rope_theta": 1000.0, "norm_eps": 1e-6, "tied": tied, "max_positions": 256,
        "dtype": dtype, "param_dtype": dtype,
    }  # fmt: skip
    section = ConfigDict({**FAMILIES[family], **sizes, **EXTRA.get(family, {}), **changes})
    return configs.read(section, DecoderConfig, "model")


@functools.cache
def parameters(cfg: DecoderConfig) -> decoder.Params:
    """Normal noise in every leaf, biases and norms included; norms around one."""
    rng = np.random.default_rng(0)
    noise = {path: 0.1 * rng.normal(size=leaf.shape) for path, leaf in shapes(cfg).items()}
    centre = 0.0 if cfg.unit_offset else 1.0
    leaves = {path: leaf + centre * path.endswith("scale") for path, leaf in noise.items()}
    return unflatten({path: jnp.asarray(leaf, cfg.param_dtype) for path, leaf in leaves.items()})
