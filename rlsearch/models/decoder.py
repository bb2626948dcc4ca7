"""The decoder policy: RMSNorm, rotary positions, grouped-query attention, gated feed-forward layers or experts.

Linen declares the parameters of one block; everything else is plain functions of a parameter pytree whose blocks are
stacked along axis 0. What a family does otherwise is data in ``DecoderConfig``.
Axes: B rows, T tokens, S cache slots, C cache capacity, E model width, H/K query and key/value heads, D head width,
F feed-forward width, V vocabulary, L layers, N tokens of a batch, X experts, k experts of a token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from rlsearch.errors import InputError, nearest
from rlsearch.models import product, rope
from rlsearch.models.architecture import FAMILIES, DecoderConfig, Experts, RopeScaling, Sliding
from rlsearch.models.attention import masked_attention, over_forest
from rlsearch.models.layout import ALONE, MODEL, TOKENS, Layout

__all__ = [
    "FAMILIES", "REMAT", "Cache", "DecoderConfig", "Experts", "Params", "RopeScaling", "Sliding", "apply",
    "check_remat", "empty_cache", "extend", "head", "init", "logits", "parameter_count", "unstack",
]  # fmt: skip

Params = dict[str, Any]
LayerCache = tuple[Float[Array, "S K C D"], Float[Array, "S K C D"]]
Cache = tuple[LayerCache, ...]  # one (keys, values) per layer; index along C is the token's position

# What the forward pass of a block keeps for the backward pass, which computes the rest again. "none" keeps all;
# "full" keeps the block's input only; "dots" keeps the results of the products with weights as well.
REMAT: dict[str, Callable | None] = {
    "none": None,
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
        jax.checkpoint_policies.save_only_these_names(product.NAME),
    ),
}


class Norm(nn.Module):
    """RMSNorm in float32 (Zhang and Sennrich, 2019); with ``unit_offset`` it multiplies by one plus its scale."""

    cfg: DecoderConfig

    @nn.compact
    def __call__(self, x):
        offset = self.cfg.unit_offset
        start = nn.initializers.zeros if offset else nn.initializers.ones
        scale = self.param("scale", start, (x.shape[-1],), jnp.dtype(self.cfg.param_dtype)).astype(jnp.float32)
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + self.cfg.norm_eps)
        return (y * jnp.expand_dims(1.0 + scale if offset else scale, range(y.ndim - 1))).astype(x.dtype)


class Dense(nn.DenseGeneral):
    """A product with weights; where they have an adapter, ``lora_a`` and ``lora_b``, that with its product is added."""

    dot_general_cls: Any = lambda: product.dot_general

    @nn.compact
    def __call__(self, x):
        out = super().__call__(x)
        if not self.has_variable("params", "lora_a"):
            return out
        a, b = (self.get_variable("params", name).astype(out.dtype) for name in ("lora_a", "lora_b"))
        return out + jnp.tensordot(jnp.tensordot(x.astype(out.dtype), a, axes=a.ndim - 1), b, axes=1)


class Attention(nn.Module):
    """Projections, norms of a head and rotary positions around ``attend(q, k, v) -> (out, cache)``."""

    cfg: DecoderConfig

    @nn.compact
    def __call__(self, x, position, frequency, attend):
        cfg = self.cfg
        kinds = {"dtype": jnp.dtype(cfg.dtype), "param_dtype": jnp.dtype(cfg.param_dtype)}
        kinds["kernel_init"] = nn.initializers.normal(cfg.d_model**-0.5)
        q = Dense((cfg.n_heads, cfg.head_dim), use_bias=cfg.qkv_bias, name="q", **kinds)(x)
        k = Dense((cfg.n_kv_heads, cfg.head_dim), use_bias=cfg.qkv_bias, name="k", **kinds)(x)
        v = Dense((cfg.n_kv_heads, cfg.head_dim), use_bias=cfg.qkv_bias, name="v", **kinds)(x)
        if cfg.qk_norm:
            q, k = Norm(cfg, name="q_norm")(q), Norm(cfg, name="k_norm")(k)
        q, k = (rope.rotate(x, position, frequency, rope.stretch(cfg.rope_scaling)) for x in (q, k))
        out, cache = attend(q, k, v)
        kinds["kernel_init"] = nn.initializers.normal((cfg.n_heads * cfg.head_dim * 2 * cfg.n_layers) ** -0.5)
        return Dense(cfg.d_model, axis=(-2, -1), use_bias=False, name="o", **kinds)(out), cache


class Mlp(nn.Module):
    """A gated linear unit (Shazeer, 2020): ``down(activation(gate(x)) * up(x))``."""

    cfg: DecoderConfig

    @nn.compact
    def __call__(self, x):
        cfg = self.cfg
        kinds = {"use_bias": False, "dtype": jnp.dtype(cfg.dtype), "param_dtype": jnp.dtype(cfg.param_dtype)}
        wide = nn.initializers.normal(cfg.d_model**-0.5)
        narrow = nn.initializers.normal((cfg.d_ff * 2 * cfg.n_layers) ** -0.5)
        gate = Dense(cfg.d_ff, name="gate", kernel_init=wide, **kinds)(x)
        up = Dense(cfg.d_ff, name="up", kernel_init=wide, **kinds)(x)
        return Dense(cfg.d_model, name="down", kernel_init=narrow, **kinds)(_activation(cfg)(gate) * up)


class Kernel(nn.Module):
    """One array of weights, under the name ``kernel``."""

    shape: tuple[int, ...]
    deviation: float
    param_dtype: Any

    @nn.compact
    def __call__(self):
        return self.param("kernel", nn.initializers.normal(self.deviation), self.shape, self.param_dtype)


class Moe(nn.Module):
    """A gated linear unit for every expert; each token goes to the ``per_token`` likeliest of a softmax over all.

    The router is computed in float32. Tokens are sorted by expert, so that each expert multiplies its own only; none is
    dropped. Experts lie over the model axis: a device computes its own for the tokens that it has, and what the devices
    of the axis found is added up.
    """

    cfg: DecoderConfig
    layout: Layout = ALONE

    @nn.compact
    def __call__(self, x):
        cfg, experts = self.cfg, self.cfg.experts
        kind, dtype = jnp.dtype(cfg.param_dtype), jnp.dtype(cfg.dtype)
        width, wide, narrow = experts.d_ff, cfg.d_model**-0.5, (experts.d_ff * 2 * cfg.n_layers) ** -0.5
        router = Kernel((cfg.d_model, experts.count), wide, kind, name="router")()
        gate = Kernel((experts.count, cfg.d_model, width), wide, kind, name="gate")().astype(dtype)
        up = Kernel((experts.count, cfg.d_model, width), wide, kind, name="up")().astype(dtype)
        down = Kernel((experts.count, width, cfg.d_model), narrow, kind, name="down")().astype(dtype)

        def local(x, router, gate, up, down):
            tokens = x.reshape(-1, cfg.d_model)
            chosen, weight = route(tokens, router, experts)
            first = self.layout.first(MODEL, len(gate))
            out = mixed(tokens, chosen, weight, gate, up, down, first=first, activation=_activation(cfg))
            return self.layout.total(out, MODEL).reshape(x.shape)

        over = P(MODEL)
        return self.layout.local(local, ins=(TOKENS, P(), over, over, over), out=TOKENS)(x, router, gate, up, down)


def mixed(
    tokens: Float[Array, "N E"],
    chosen: Int[Array, "N k"],
    weight: Float[Array, "N k"],
    gate: Float[Array, "X E F"],
    up: Float[Array, "X E F"],
    down: Float[Array, "X F E"],
    *,
    first: Int[Array, ""] | None,
    activation: Callable,
) -> Float[Array, "N E"]:
    """What the experts ``first .. first + X - 1`` add to each token, by weight; all there are where ``first`` is None.

    Tokens of other experts are sorted behind, where no expert multiplies them.
    """
    experts, per_token = len(gate), chosen.shape[1]
    if first is not None:
        chosen = jnp.where((chosen >= first) & (chosen < first + experts), chosen - first, experts)
    order = jnp.argsort(chosen.reshape(-1), stable=True)
    sizes = jnp.bincount(chosen.reshape(-1), length=experts + 1)[:experts].astype(jnp.int32)
    sorted_tokens, there = tokens[order // per_token], jnp.arange(chosen.size)[:, None] < sizes.sum()
    inside = activation(jax.lax.ragged_dot(sorted_tokens, gate, sizes)) * jax.lax.ragged_dot(sorted_tokens, up, sizes)
    out = jax.lax.ragged_dot(jnp.where(there, inside, 0), down, sizes)
    out = jnp.where(there, out, 0)[jnp.argsort(order)].reshape(*chosen.shape, -1)
    return (out * weight[..., None].astype(out.dtype)).sum(axis=1)


def route(
    tokens: Float[Array, "N E"], router: Float[Array, "E X"], experts: Experts
) -> tuple[Int[Array, "N k"], Float[Array, "N k"]]:
    """The experts of every token, likeliest first, and their weights in float32."""
    scores = jnp.matmul(tokens, router.astype(tokens.dtype), preferred_element_type=jnp.float32)
    weight, chosen = jax.lax.top_k(jax.nn.softmax(scores, axis=-1), experts.per_token)
    return chosen, weight / weight.sum(axis=-1, keepdims=True) if experts.normalise else weight


class Block(nn.Module):
    """One layer: attention and feed-forward, each after a norm and around a residual."""

    cfg: DecoderConfig
    layout: Layout = ALONE

    @nn.compact
    def __call__(self, x, position, frequency, attend):
        cfg = self.cfg
        out, cache = Attention(cfg, name="attn")(Norm(cfg, name="attn_norm")(x), position, frequency, attend)
        x = x + (Norm(cfg, name="attn_post_norm")(out) if cfg.post_norms else out)
        feed_forward = Mlp(cfg, name="mlp") if cfg.experts is None else Moe(cfg, self.layout, name="moe")
        out = feed_forward(Norm(cfg, name="mlp_norm")(x))
        return x + (Norm(cfg, name="mlp_post_norm")(out) if cfg.post_norms else out), cache


def _activation(cfg: DecoderConfig) -> Callable:
    return nn.silu if cfg.activation == "silu" else lambda x: nn.gelu(x, approximate=True)


def init(key: Array, cfg: DecoderConfig) -> Params:
    """Fresh parameters: normal kernels of standard deviation 1/sqrt(fan in), residual outputs divided by sqrt(2 L)."""
    dtype = jnp.dtype(cfg.param_dtype)
    embed_key, block_key, head_key = jax.random.split(key, 3)
    x, position = jnp.zeros((1, 1, cfg.d_model), jnp.dtype(cfg.dtype)), jnp.zeros((1, 1), jnp.int32)

    def one_block(block_key):
        return Block(cfg).init(block_key, x, position, _frequency(cfg, 0), lambda q, k, v: (q, None))["params"]

    params = {
        "embed": {"embedding": jax.random.normal(embed_key, (cfg.vocab_size, cfg.d_model), dtype) * cfg.d_model**-0.5},
        "blocks": jax.vmap(one_block)(jax.random.split(block_key, cfg.n_layers)),
        "final_norm": {"scale": jnp.full((cfg.d_model,), 0 if cfg.unit_offset else 1, dtype)},
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
    remat: str | bool,
    attention: str,
    layout: Layout = ALONE,
) -> Float[Array, "B T E"]:
    """Hidden states of packed rows, after the final norm.

    ``remat`` names a policy of REMAT; False is "none" and True is "full". ``attention`` is one of
    ``attention.IMPLEMENTATIONS``, and raises what that one cannot honour. With a ``layout`` of several devices the rows
    lie over them, and the tokens of a row over its sequence axis.
    """
    mix = over_forest(
        token_end, implementation=attention, position=position, scale=cfg.score_scale, cap=cfg.attention_cap,
        layout=layout,
    )  # fmt: skip

    def block(x, layer):
        weights, frequency, window = layer

        def attend(q, k, v):
            return mix(q, k, v, window=window), None

        x, _ = Block(cfg, layout).apply({"params": weights}, x, position, frequency, attend)
        return layout.tokens(x), None

    def alike(x, weights):
        return block(x, (weights, _frequency(cfg, 0), None))

    x = layout.tokens(_embed(params, cfg, token_id))
    if cfg.sliding is None:
        x, _ = jax.lax.scan(_rematerialised(alike, remat), x, params["blocks"])
    else:  # layers differ in data alone, so that one scan holds them
        frequency = jnp.stack([_frequency(cfg, layer) for layer in range(cfg.n_layers)])
        window = jnp.asarray([_window(cfg, layer) for layer in range(cfg.n_layers)], jnp.int32)
        x, _ = jax.lax.scan(_rematerialised(block, remat), x, (params["blocks"], frequency, window))
    return _norm(cfg, params["final_norm"], x)


def check_remat(remat: str | bool) -> str:
    """The name of a policy of REMAT.

    Raises:
      InputError: no such policy.
    """
    name = {False: "none", True: "full"}.get(remat, remat)
    if name not in REMAT:
        raise InputError(f"remat {name!r} is unknown{nearest(str(name), REMAT)}")
    return name


def extend(
    params: Params, cfg: DecoderConfig, cache: Cache, *, token_id: Int[Array, "S T"], start: Int[Array, "S"]
) -> tuple[Float[Array, "S T E"], Cache]:
    """Hidden states of T more tokens of each slot, and the cache with them written at ``start[s] .. start[s] + T - 1``.

    Slot s must hold positions ``0 .. start[s] - 1``; what lies behind is overwritten before it can be seen, so a slot
    is cut back by passing a smaller start. ``start[s] + T`` must not exceed the capacity (the caller checks: inside
    jit a write past the end would be moved). Blocks are unrolled: a scan would copy every layer's weights each step.
    """
    position = start[:, None] + jnp.arange(token_id.shape[1])[None]
    back = position[:, :, None] - jnp.arange(cache[0][0].shape[2])[None, None]
    write = jax.vmap(lambda old, new, at: jax.lax.dynamic_update_slice(old, new, (0, at, 0)))
    x, written = _embed(params, cfg, token_id), []
    for layer, (weights, old) in enumerate(zip(unstack(params["blocks"], cfg.n_layers), cache, strict=True)):
        mask = (back >= 0) & (back < _window(cfg, layer)) if cfg.slides(layer) else back >= 0

        def attend(q, k, v, old=old, mask=mask):
            keys = write(old[0], k.swapaxes(1, 2).astype(old[0].dtype), start)
            values = write(old[1], v.swapaxes(1, 2).astype(old[1].dtype), start)
            out = masked_attention(q, keys, values, mask, scale=cfg.score_scale, cap=cfg.attention_cap)
            return out, (keys, values)

        x, new = Block(cfg).apply({"params": weights}, x, position, _frequency(cfg, layer), attend)
        written.append(new)
    return _norm(cfg, params["final_norm"], x), tuple(written)


def logits(params: Params, cfg: DecoderConfig, hidden: Float[Array, "... E"]) -> Float[Array, "... V"]:
    """Next-token logits in float32."""
    kernel = head(params, cfg).T if cfg.tied else head(params, cfg)
    raw = jnp.matmul(hidden, kernel.astype(hidden.dtype), preferred_element_type=jnp.float32)
    return raw if cfg.logit_cap is None else cfg.logit_cap * jnp.tanh(raw / cfg.logit_cap)


def head(params: Params, cfg: DecoderConfig) -> Float[Array, "E V"] | Float[Array, "V E"]:
    """The head's kernel as it is kept: [E, V], or the embedding, [V, E], where tied; an adapter is added to it."""
    if cfg.tied:
        return params["embed"]["embedding"]
    kernel, adapter = params["head"]["kernel"], params["head"]
    if "lora_a" not in adapter:
        return kernel
    return kernel.astype(jnp.float32) + jnp.matmul(adapter["lora_a"], adapter["lora_b"])


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
    table = params["embed"]
    x = table["embedding"][token_id].astype(cfg.dtype)
    if "lora_a" in table:
        x = x + jnp.matmul(table["lora_a"][token_id].astype(cfg.dtype), table["lora_b"].astype(cfg.dtype))
    return x * jnp.asarray(cfg.d_model**0.5, cfg.dtype) if cfg.scale_embedding else x


def _norm(cfg, scale, x):
    return Norm(cfg).apply({"params": scale}, x)


def _frequency(cfg: DecoderConfig, layer: int) -> Float[Array, "F"]:
    """Rotary frequencies of a layer."""
    if cfg.slides(layer):
        return rope.frequencies(cfg.head_dim, cfg.sliding.rope_theta)
    return rope.frequencies(cfg.head_dim, cfg.rope_theta, cfg.rope_scaling)


def _window(cfg: DecoderConfig, layer: int) -> int:
    """How many positions a layer sees, the token's own included."""
    return cfg.sliding.window if cfg.slides(layer) else np.iinfo(np.int32).max


def _rematerialised(block: Callable, remat: str | bool) -> Callable:
    policy = REMAT[check_remat(remat)]
    return block if policy is None else jax.checkpoint(block, policy=policy, prevent_cse=False)
