"""The head that looks one token back."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.models import attention, decoder, rope
from rlsearch.models.decoder import DecoderConfig
from rlsearch.models.previous_token import previous_token_head
from tests.models import small

WIDTH = 24  # of a head, and tokens: values that are one-hot by position come out as the weights


def config() -> DecoderConfig:
    """The proportions of the quickstart's policy."""
    return DecoderConfig(
        **{**vars(small.config()), "d_model": 96, "n_kv_heads": 4, "head_dim": WIDTH, "rope_theta": 1000.0}
    )


@functools.cache
def fresh() -> decoder.Params:
    return jax.jit(decoder.init, static_argnames="cfg")(jax.random.key(0), cfg=config())


def weights(params: decoder.Params, *, layer: int, content: float) -> np.ndarray:
    """Attention [heads, queries, keys] of one layer over tokens of random states, of deviation ``content``."""
    attn = jax.tree.map(lambda leaf: leaf[layer], params["blocks"]["attn"])
    x = content * np.random.default_rng(0).normal(size=(WIDTH, 96)).astype(np.float32)
    q, k = (jnp.einsum("te,ehd->thd", x, attn[n]["kernel"]) + attn[n]["bias"][None] for n in ("q", "k"))
    q, k = (rope.rotate(part[None], np.arange(WIDTH)[None], rope.frequencies(WIDTH, 1000.0)) for part in (q, k))
    one_hot = np.broadcast_to(np.eye(WIDTH, dtype=np.float32), (1, 4, WIDTH, WIDTH))
    mask = np.tril(np.ones((1, WIDTH, WIDTH), bool))
    return np.asarray(attention.masked_attention(q, k.swapaxes(1, 2), one_hot, mask))[0].swapaxes(0, 1)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 2)])
@pytest.mark.parametrize(("content", "least"), [(0.0, 0.9), (0.3, 0.9), (1.0, 0.7)])
def test_most_attention_lies_one_token_back(layer, head, content, least):
    """By position nearly all of it, and most of it whatever the tokens add at a fresh network's scale."""
    params = previous_token_head(fresh(), config(), layer=layer, head=head, strength=6.0)
    back = np.diagonal(weights(params, layer=layer, content=content), offset=-1, axis1=1, axis2=2)
    assert back[head].mean() > least
    assert np.delete(back, head, axis=0).mean() < 0.3


def test_nothing_else_is_touched():
    params = previous_token_head(fresh(), config(), layer=0, head=1, strength=6.0)
    changed = jax.tree.map(lambda new, old: int((np.asarray(new) != np.asarray(old)).sum()), params, fresh())
    attn = changed["blocks"]["attn"]
    # Of the four planes: cosine and sine for the query, a one for the key.
    assert (attn["q"]["bias"], attn["k"]["bias"], sum(jax.tree.leaves(changed))) == (8, 4, 12)


@pytest.mark.parametrize("cfg", [small.config(), small.config(family="llama", n_kv_heads=4)])
def test_needs_biases_and_a_head_of_its_own(cfg):
    with pytest.raises(ValueError, match="needs q/k biases and a key/value head of its own"):
        previous_token_head(small.parameters(cfg), cfg, layer=0, head=0, strength=6.0)
