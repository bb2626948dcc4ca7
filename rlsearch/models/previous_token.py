"""A head that looks at the token before, from the start: the first half of an induction head (Olsson et al., 2022).

A small policy has to learn to copy from what it read, and finding this head by gradient takes most of a short warm-up.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlsearch.models import rope
from rlsearch.models.decoder import DecoderConfig, Params


def previous_token_head(params: Params, cfg: DecoderConfig, *, layer: int, head: int, strength: float) -> Params:
    """Sets one head's query and key biases so that its score peaks one token back, whatever the tokens are.

    With key bias (a, 0) and query bias a (cos f, -sin f) on a plane of frequency f, rotary positions turn the product
    into ``a^2 cos(f (distance - 1))``; the four fastest planes are used. Needs biases, and one key/value head a head.
    """
    if not cfg.qkv_bias or cfg.n_heads != cfg.n_kv_heads:
        raise ValueError("a previous-token head needs q/k biases and a key/value head of its own")
    half, planes = cfg.head_dim // 2, min(4, cfg.head_dim // 2)
    angle = rope.frequencies(cfg.head_dim, cfg.rope_theta, cfg.rope_scaling)[:planes]
    query = jnp.zeros(cfg.head_dim).at[:planes].set(jnp.cos(angle)).at[half : half + planes].set(-jnp.sin(angle))
    key = jnp.zeros(cfg.head_dim).at[:planes].set(1.0)
    attn = params["blocks"]["attn"]
    biases = {
        name: {**attn[name], "bias": attn[name]["bias"].at[layer, head].set(strength * value)}
        for name, value in (("q", query), ("k", key))
    }
    return {**params, "blocks": {**params["blocks"], "attn": {**attn, **biases}}}
