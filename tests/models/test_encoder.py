from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.models import encoder

CFG = encoder.EncoderConfig(vocab_size=50, d_model=16, n_layers=2, n_heads=4, d_ff=32, max_positions=24, norm_eps=1e-12)
EMBED = jax.jit(lambda params, token_id, valid: encoder.embed(params, CFG, token_id=token_id, valid=valid))


@pytest.fixture(scope="module")
def params():
    """Random everywhere, biases and norms too, so that nothing is left out unnoticed."""
    leaves, tree = jax.tree.flatten(jax.jit(lambda key: encoder.init(key, CFG))(jax.random.key(0)))
    rng = np.random.default_rng(1)
    return jax.tree.unflatten(tree, [leaf + jnp.asarray(rng.normal(0, 0.3, leaf.shape), leaf.dtype) for leaf in leaves])


def rows(lengths, width, seed=0):
    rng = np.random.default_rng(seed)
    valid = np.arange(width) < np.array(lengths)[:, None]
    return jnp.asarray(np.where(valid, rng.integers(1, CFG.vocab_size, valid.shape), 0)), jnp.asarray(valid)


def slow_embed(params, token_id):
    """One row without padding, one token and head at a time, in float64."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    def norm(x, at):
        return (x - x.mean()) / math.sqrt(x.var() + CFG.norm_eps) * at["scale"] + at["bias"]

    def gelu(x):
        return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])

    x = [norm(p["embed"]["token"][t] + p["embed"]["position"][i], p["embed_norm"]) for i, t in enumerate(token_id)]
    for layer in range(CFG.n_layers):
        block = jax.tree.map(lambda leaf, layer=layer: leaf[layer], p["blocks"])

        def project(name, v, block=block):
            return np.tensordot(v, block[name]["kernel"], 1) + block[name]["bias"]

        q, k, v = ([project(name, token) for token in x] for name in "qkv")
        out = []
        for i, token in enumerate(x):
            mixed = np.zeros_like(q[i])
            for head in range(CFG.n_heads):
                score = np.exp([q[i][head] @ k[j][head] / math.sqrt(CFG.d_model / CFG.n_heads) for j in range(len(x))])
                mixed[head] = sum(w * v[j][head] for j, w in enumerate(score / score.sum()))
            mixed = np.einsum("hd,hde->e", mixed, block["o"]["kernel"]) + block["o"]["bias"]
            token = norm(token + mixed, block["attn_norm"])
            out.append(norm(token + project("down", gelu(project("up", token))), block["mlp_norm"]))
        x = out
    mean = np.mean(x, axis=0)
    return mean / np.linalg.norm(mean)


def test_equals_the_definition(params):
    token_id, valid = rows([5, 9, 1], 9)
    fast = EMBED(params, token_id=token_id, valid=valid)
    for row, length in enumerate([5, 9, 1]):
        np.testing.assert_allclose(fast[row], slow_embed(params, np.asarray(token_id[row, :length])), atol=2e-5)


def test_padding_of_any_length_and_content_is_not_seen(params):
    token_id, valid = rows([5, 3], 5)
    expected = EMBED(params, token_id=token_id, valid=valid)
    longer, _ = rows([24, 24], 24, seed=1)
    longer = longer.at[:, :5].set(jnp.where(valid, token_id, longer[:, :5]))
    wide = jnp.zeros((2, 24), bool).at[:, :5].set(valid)
    np.testing.assert_allclose(EMBED(params, token_id=longer, valid=wide), expected, atol=1e-5)


def test_every_valid_token_sees_every_other_and_no_row_sees_another(params):
    token_id, valid = rows([6, 4], 6)

    def hidden(table):
        x = {**params, "embed": {**params["embed"], "position": table}}
        return encoder.apply(x, CFG, token_id=token_id, valid=valid)

    slope = jax.jit(jax.jacobian(hidden))(params["embed"]["position"])  # [B, T, E, positions, E]
    reach = jnp.abs(slope).sum(axis=(2, 4)) > 0  # [B, T, positions]: positions that a token's state depends on
    assert reach[0, :, :6].all()
    assert reach[1, :4, :4].all()
    assert not reach[1, :4, 4:].any()
    alone = EMBED(params, token_id=token_id[1:], valid=valid[1:])
    np.testing.assert_allclose(alone[0], EMBED(params, token_id=token_id, valid=valid)[1], atol=1e-5)


def test_order_of_tokens_matters_and_vectors_have_length_one(params):
    token_id, valid = rows([7, 7], 7)
    vectors = EMBED(params, token_id=token_id, valid=valid)
    np.testing.assert_allclose(jnp.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert jnp.abs(EMBED(params, token_id=token_id[:, ::-1], valid=valid) - vectors).max() > 1e-3


def test_the_real_size_by_shape_alone():
    cfg = encoder.EncoderConfig(
        vocab_size=30522, d_model=384, n_layers=6, n_heads=12, d_ff=1536, max_positions=512, norm_eps=1e-12
    )
    params = jax.eval_shape(lambda key: encoder.init(key, cfg), jax.random.key(0))
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    assert count == 22713216 - 2 * 384 - (384 * 384 + 384)  # the published count, less segments and pooler
    out = jax.eval_shape(
        lambda p, t, v: encoder.embed(p, cfg, token_id=t, valid=v),
        params,
        jax.ShapeDtypeStruct((4, 128), jnp.int32),
        jax.ShapeDtypeStruct((4, 128), bool),
    )
    assert (out.shape, out.dtype) == ((4, 384), jnp.float32)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(InputError, match="5 heads"):
        encoder.EncoderConfig(50, 16, 2, 5, 32, 24, 1e-12)
