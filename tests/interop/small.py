"""Small models with random weights, and tokenizers that fit them."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np

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


def config(family: str, *, tied: bool, dtype: str) -> DecoderConfig:
    """Two layers, four query and two key/value heads, no two axes of one size."""
    return DecoderConfig(
        family=family, vocab_size=tokenizer().vocab_size, d_model=48, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=12,
        d_ff=80, rope_theta=1000.0, norm_eps=1e-6, qkv_bias=family == "qwen2", tied=tied, max_positions=256,
        dtype=dtype, param_dtype=dtype,
    )  # fmt: skip


@functools.cache
def parameters(cfg: DecoderConfig) -> decoder.Params:
    """Normal noise in every leaf, biases and norms included; norms around one."""
    rng = np.random.default_rng(0)
    noise = {path: 0.1 * rng.normal(size=leaf.shape) for path, leaf in shapes(cfg).items()}
    leaves = {path: leaf + path.endswith("scale") for path, leaf in noise.items()}
    return unflatten({path: jnp.asarray(leaf, cfg.param_dtype) for path, leaf in leaves.items()})
