"""Small models with random weights, and tokenizers that fit them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

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


def config(family: str, *, tied: bool, dtype: str) -> DecoderConfig:
    """Two layers, four query and two key/value heads, no two axes of one size."""
    return DecoderConfig(
        family=family, vocab_size=tokenizer().vocab_size, d_model=48, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=12,
        d_ff=80, rope_theta=1000.0, norm_eps=1e-6, qkv_bias=family == "qwen2", tied=tied, max_positions=256,
        dtype=dtype, param_dtype=dtype,
    )  # fmt: skip


@functools.cache
def parameters(cfg: DecoderConfig) -> decoder.Params:
    """Normal noise in every leaf, biases and norms included."""
    leaves, tree = jax.tree.flatten(decoder.init(jax.random.key(0), cfg))
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [
        leaf + 0.1 * jax.random.normal(key, leaf.shape, jnp.float32) for leaf, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(tree, [leaf.astype(cfg.param_dtype) for leaf in noisy])
