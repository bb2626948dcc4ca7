"""The decoder policy: RMSNorm, rotary positions, grouped-query attention, SwiGLU; Llama and Qwen2 as data.

Linen declares the parameters of one block; everything else is plain functions of a parameter pytree whose blocks are
stacked along axis 0. Axes: B rows, T tokens, S cache slots, C cache capacity, E model width, H/K query and key/value
heads, D head width, F feed-forward width, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlsearch.errors import InputError
from rlsearch.models import rope
from rlsearch.models.attention import masked_attention, over_forest

Params = dict[str, Any]
LayerCache = tuple[Float[Array, "S K C D"], Float[Array, "S K C D"]]
Cache = tuple[LayerCache, ...]  # one (keys, values) per layer; index along C is the token's position

FAMILIES = ("llama", "qwen2")


@dataclass(frozen=True)
class DecoderConfig:
    """The architecture of a policy, as ``configs/models/`` states it."""

    family: str  # which Hugging Face architecture it is exported as: one of FAMILIES
    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    rope_theta: float
    norm_eps: float
    qkv_bias: bool
    tied: bool  # the head is the transposed embedding
    max_positions: int
    dtype: str  # of activations
    param_dtype: str

    def __post_init__(self):
        if self.family not in FAMILIES:
            raise InputError(f"model family {self.family!r}: known are {', '.join(FAMILIES)}")
        if self.n_heads % self.n_kv_heads:
            raise InputError(f"model: {self.n_heads} query heads cannot share {self.n_kv_heads} key/value heads evenly")
        if self.head_dim % 2:
            raise InputError(f"model: rotary positions need an even head_dim, got {self.head_dim}")
        if self.qkv_bias != (self.family == "qwen2"):
            raise InputError(f"model: family {self.family!r} needs qkv_bias={self.family == 'qwen2'}")


class Norm(nn.Module):
    """RMSNorm in float32 (Zhang and Sennrich, 2019)."""

    eps: float
    param_dtype: Any

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), self.param_dtype)
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + self.eps)
        return (y * jnp.expand_dims(scale, range(y.ndim - 1))).astype(x.dtype)


class Attention(nn.Module):
    """Projections and rotary positions around ``attend(q, k, v) -> (out, cache)``."""

    cfg: DecoderConfig

    @nn.compact
    def __call__(self, x, position, attend):
        cfg = self.cfg
        kinds = {"dtype": jnp.dtype(cfg.dtype), "param_dtype": jnp.dtype(cfg.param_dtype)}
        kinds["kernel_init"] = nn.initializers.normal(cfg.d_model**-0.5)
        q = nn.DenseGeneral((cfg.n_heads, cfg.head_dim), use_bias=cfg.qkv_bias, name="q", **kinds)(x)
        k = nn.DenseGeneral((cfg.n_kv_heads, cfg.head_dim), use_bias=cfg.qkv_bias, name="k", **kinds)(x)
        v = nn.DenseGeneral((cfg.n_kv_heads, cfg.head_dim), use_bias=cfg.qkv_bias, name="v", **kinds)(x)
        q, k = rope.rotate(q, position, cfg.rope_theta), rope.rotate(k, position, cfg.rope_theta)
        out, cache = attend(q, k, v)
        kinds["kernel_init"] = nn.initializers.normal((cfg.n_heads * cfg.head_dim * 2 * cfg.n_layers) ** -0.5)
        return nn.DenseGeneral(cfg.d_model, axis=(-2, -1), use_bias=False, name="o", **kinds)(out), cache


class Mlp(nn.Module):
    """SwiGLU (Shazeer, 2020): ``down(silu(gate(x)) * up(x))``."""

    cfg: DecoderConfig

    @nn.compact
    def __call__(self, x):
        cfg = self.cfg
        kinds = {"use_bias": False, "dtype": jnp.dtype(cfg.dtype), "param_dtype": jnp.dtype(cfg.param_dtype)}
        wide = nn.initializers.normal(cfg.d_model**-0.5)
        narrow = nn.initializers.normal((cfg.d_ff * 2 * cfg.n_layers) ** -0.5)
        gate = nn.Dense(cfg.d_ff, name="gate", kernel_init=wide, **kinds)(x)
        up = nn.Dense(cfg.d_ff, name="up", kernel_init=wide, **kinds)(x)
        return nn.Dense(cfg.d_model, name="down", kernel_init=narrow, **kinds)(nn.silu(gate) * up)


class Block(nn.Module):
    """One layer: attention and feed-forward, each after a norm and around a residual."""

    cfg: DecoderConfig

    @nn.compact
    def __call__(self, x, position, attend):
        kinds = {"eps": self.cfg.norm_eps, "param_dtype": jnp.dtype(self.cfg.param_dtype)}
        out, cache = Attention(self.cfg, name="attn")(Norm(name="attn_norm", **kinds)(x), position, attend)
        x = x + out
        return x + Mlp(self.cfg, name="mlp")(Norm(name="mlp_norm", **kinds)(x)), cache


def init(key: Array, cfg: DecoderConfig) -> Params:
    """Fresh parameters: normal kernels of standard deviation 1/sqrt(fan in), residual outputs divided by sqrt(2 L)."""
    dtype = jnp.dtype(cfg.param_dtype)
    embed_key, block_key, head_key = jax.random.split(key, 3)
    x, position = jnp.zeros((1, 1, cfg.d_model), jnp.dtype(cfg.dtype)), jnp.zeros((1, 1), jnp.int32)

    def one_block(block_key):
        return Block(cfg).init(block_key, x, position, lambda q, k, v: (q, None))["params"]

    params = {
        "embed": {"embedding": jax.random.normal(embed_key, (cfg.vocab_size, cfg.d_model), dtype) * cfg.d_model**-0.5},
        "blocks": jax.vmap(one_block)(jax.random.split(block_key, cfg.n_layers)),
        "final_norm": {"scale": jnp.ones((cfg.d_model,), dtype)},
    }
    if not cfg.tied:
        head = jax.random.normal(head_key, (cfg.d_model, cfg.vocab_size), dtype) * cfg.d_model**-0.5
        params["head"] = {"kernel": head}
    return params


def apply(
    params: Params,
    cfg: DecoderConfig,
    *,
    token_id: Int[Array, "B T"],
    position: Int[Array, "B T"],
    token_end: Int[Array, "B T"],
    remat: bool,
    attention: str,
) -> Float[Array, "B T E"]:
    """Hidden states of packed rows, after the final norm; ``remat`` recomputes each block in the backward pass.

    ``attention`` is one of ``attention.IMPLEMENTATIONS``, and raises what that one cannot honour.
    """
    mix = over_forest(token_end, implementation=attention)

    def attend(q, k, v):
        return mix(q, k, v), None

    def block(x, layer):
        return Block(cfg).apply({"params": layer}, x, position, attend)[0], None

    x = _embed(params, cfg, token_id)
    x, _ = jax.lax.scan(jax.checkpoint(block) if remat else block, x, params["blocks"])
    return _norm(cfg, params["final_norm"], x)


def extend(
    params: Params, cfg: DecoderConfig, cache: Cache, *, token_id: Int[Array, "S T"], start: Int[Array, "S"]
) -> tuple[Float[Array, "S T E"], Cache]:
    """Hidden states of T more tokens of each slot, and the cache with them written at ``start[s] .. start[s] + T - 1``.

    Slot s must hold positions ``0 .. start[s] - 1``; what lies behind is overwritten before it can be seen, so a slot
    is cut back by passing a smaller start. ``start[s] + T`` must not exceed the capacity (the caller checks: inside
    jit a write past the end would be moved). Blocks are unrolled: a scan would copy every layer's weights each step.
    """
    position = start[:, None] + jnp.arange(token_id.shape[1])[None]
    mask = jnp.arange(cache[0][0].shape[2])[None, None] <= position[:, :, None]
    write = jax.vmap(lambda old, new, at: jax.lax.dynamic_update_slice(old, new, (0, at, 0)))
    x, written = _embed(params, cfg, token_id), []
    for layer, (keys, values) in zip(unstack(params["blocks"], cfg.n_layers), cache, strict=True):

        def attend(q, k, v, keys=keys, values=values):
            keys = write(keys, k.swapaxes(1, 2).astype(keys.dtype), start)
            values = write(values, v.swapaxes(1, 2).astype(values.dtype), start)
            return masked_attention(q, keys, values, mask), (keys, values)

        x, layer_cache = Block(cfg).apply({"params": layer}, x, position, attend)
        written.append(layer_cache)
    return _norm(cfg, params["final_norm"], x), tuple(written)


def logits(params: Params, cfg: DecoderConfig, hidden: Float[Array, "... E"]) -> Float[Array, "... V"]:
    """Next-token logits in float32."""
    kernel = head(params, cfg).T if cfg.tied else head(params, cfg)
    return jnp.matmul(hidden, kernel.astype(hidden.dtype), preferred_element_type=jnp.float32)


def head(params: Params, cfg: DecoderConfig) -> Float[Array, "E V"] | Float[Array, "V E"]:
    """The head's kernel as it is kept: [E, V], or the embedding, [V, E], where tied."""
    return params["embed"]["embedding"] if cfg.tied else params["head"]["kernel"]


def empty_cache(cfg: DecoderConfig, *, slots: int, capacity: int) -> Cache:
    """A cache for ``slots`` sequences of up to ``capacity`` tokens, laid out (slot, head, position, width)."""
    shape = (slots, cfg.n_kv_heads, capacity, cfg.head_dim)
    return tuple((jnp.zeros(shape, cfg.dtype), jnp.zeros(shape, cfg.dtype)) for _ in range(cfg.n_layers))


def unstack(blocks: Params | tuple[Params, ...], n_layers: int) -> tuple[Params, ...]:
    """The stacked blocks as one pytree a layer (as they are, where they are unstacked already)."""
    if isinstance(blocks, tuple):
        return blocks
    return tuple(jax.tree.map(lambda leaf, layer=layer: leaf[layer], blocks) for layer in range(n_layers))


def parameter_count(params: Params) -> int:
    """Number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _embed(params, cfg, token_id):
    return params["embed"]["embedding"][token_id].astype(cfg.dtype)


def _norm(cfg, scale, x):
    return Norm(cfg.norm_eps, jnp.dtype(cfg.param_dtype)).apply({"params": scale}, x)
