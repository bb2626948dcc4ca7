"""Adapters with noise in every leaf, so that no product is zero."""

from __future__ import annotations

import jax
import numpy as np

from rlsearch.models import lora
from rlsearch.models.decoder import DecoderConfig, Params
from rlsearch.models.lora import MATRICES, LoraConfig


def possible(cfg: DecoderConfig) -> tuple[str, ...]:
    """All matrices that a model can have an adapter of."""
    inside = ("q", "k", "v", "o") if cfg.experts else ("q", "k", "v", "o", "gate", "up", "down")
    return inside if cfg.tied else (*inside, "embed", "head")


def config(cfg: DecoderConfig, *, rank: int = 2, alpha: float = 3.0) -> LoraConfig:
    """An adapter of every matrix that there can be one of."""
    return LoraConfig(rank, alpha, possible(cfg))


def noisy(cfg: DecoderConfig, config: LoraConfig, *, seed: int = 3) -> Params:
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda key: lora.init(key, cfg, config), jax.random.key(0))
    return jax.tree.map(lambda leaf: np.float32(0.3) * rng.normal(size=leaf.shape).astype(np.float32), shapes)


def projected(gradient: Params, adapter: Params, config: LoraConfig) -> Params:
    """The gradient by an adapter from that by the merged matrices: with W + s A B, dA = s dW B' and dB = s A' dW."""
    found: Params = {}
    for name in config.matrices:
        matrix = MATRICES[name]
        whole = np.asarray(matrix.of(gradient)[matrix.leaf], np.float64)
        a, b = (np.asarray(matrix.of(adapter["lora"])[leaf], np.float64) for leaf in ("a", "b"))
        layers = range(whole.shape[0]) if matrix.stacked else [...]
        pairs = [_one(whole[layer], a[layer], b[layer], config.alpha / config.rank) for layer in layers]
        at = found
        for key in matrix.path:
            at = at.setdefault(key, {})
        join = np.stack if matrix.stacked else lambda parts: parts[0]
        at["a"], at["b"] = (join([pair[i] for pair in pairs]) for i in (0, 1))
    return {"lora": found}


def _one(whole, a, b, scale):
    flat_a, flat_b = a.reshape(-1, a.shape[-1]), b.reshape(b.shape[0], -1)
    flat = whole.reshape(flat_a.shape[0], flat_b.shape[1])
    return scale * (flat @ flat_b.T).reshape(a.shape), scale * (flat_a.T @ flat).reshape(b.shape)
