"""A BERT text encoder: post-norm blocks, learned positions, exact GELU (Devlin et al., 2019), and mean pooling.

Linen declares the parameters of one block; everything else is plain functions of a parameter pytree whose blocks are
stacked along axis 0. Axes: B rows, T tokens of a row, E model width, H heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlsearch.errors import InputError
from rlsearch.models import attention

Params = dict[str, Any]


@dataclass(frozen=True)
class EncoderConfig:
    """The architecture of a text encoder, as its ``config.json`` states it."""

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    max_positions: int
    norm_eps: float

    def __post_init__(self):
        if self.d_model % self.n_heads:
            raise InputError(f"encoder: {self.n_heads} heads cannot share a width of {self.d_model} evenly")


class Block(nn.Module):
    """One layer: attention and feed-forward, each added to its input and then normalised."""

    cfg: EncoderConfig

    @nn.compact
    def __call__(self, x, mask):
        cfg = self.cfg
        heads = (cfg.n_heads, cfg.d_model // cfg.n_heads)
        q, k, v = (nn.DenseGeneral(heads, name=name)(x) for name in "qkv")
        mixed = attention.masked_attention(q, k.swapaxes(1, 2), v.swapaxes(1, 2), mask)
        x = nn.LayerNorm(cfg.norm_eps, name="attn_norm")(
            x + nn.DenseGeneral(cfg.d_model, axis=(-2, -1), name="o")(mixed)
        )
        wide = nn.gelu(nn.Dense(cfg.d_ff, name="up")(x), approximate=False)
        return nn.LayerNorm(cfg.norm_eps, name="mlp_norm")(x + nn.Dense(cfg.d_model, name="down")(wide))


def init(key: Array, cfg: EncoderConfig) -> Params:
    """Fresh float32 parameters: embeddings of standard deviation 0.02, blocks as Linen draws them."""
    token_key, position_key, block_key = jax.random.split(key, 3)
    x, mask = jnp.zeros((1, 1, cfg.d_model)), jnp.ones((1, 1, 1), bool)

    def one_block(key):
        return Block(cfg).init(key, x, mask)["params"]

    return {
        "embed": {
            "token": jax.random.normal(token_key, (cfg.vocab_size, cfg.d_model)) * 0.02,
            "position": jax.random.normal(position_key, (cfg.max_positions, cfg.d_model)) * 0.02,
        },
        "embed_norm": {"scale": jnp.ones(cfg.d_model), "bias": jnp.zeros(cfg.d_model)},
        "blocks": jax.vmap(one_block)(jax.random.split(block_key, cfg.n_layers)),
    }


def apply(
    params: Params, cfg: EncoderConfig, *, token_id: Int[Array, "B T"], valid: Bool[Array, "B T"]
) -> Float[Array, "B T E"]:
    """Hidden states after the last block; ``valid`` tokens see each other, and what stands elsewhere means nothing.

    Every row needs a valid token, and T must not exceed ``max_positions`` (the caller checks).
    """
    x = params["embed"]["token"][token_id] + params["embed"]["position"][None, : token_id.shape[1]]
    x = nn.LayerNorm(cfg.norm_eps).apply({"params": params["embed_norm"]}, x)
    mask = jnp.broadcast_to(valid[:, None, :], (*token_id.shape, token_id.shape[1]))

    def block(x, layer):
        return Block(cfg).apply({"params": layer}, x, mask), None

    return jax.lax.scan(block, x, params["blocks"])[0]


def embed(
    params: Params, cfg: EncoderConfig, *, token_id: Int[Array, "B T"], valid: Bool[Array, "B T"]
) -> Float[Array, "B E"]:
    """One unit vector a row: the mean of the hidden states of its valid tokens (Reimers and Gurevych, 2019)."""
    hidden = apply(params, cfg, token_id=token_id, valid=valid)
    total = jnp.sum(hidden * valid[..., None], axis=1)
    return total / jnp.linalg.norm(total, axis=-1, keepdims=True)
