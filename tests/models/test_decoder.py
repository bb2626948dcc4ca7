"""The decoder with and without its cache, and at real sizes."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.models import model
from rlsearch import config as configs
from rlsearch.errors import InputError
from rlsearch.models import decoder, sharding
from rlsearch.models.decoder import DecoderConfig, RopeScaling
from tests.models import small

TOKENS = 12
CONFIGS = [
    small.config(),
    small.config(family="llama", tied=False),
    small.config(n_kv_heads=4),
    *(small.config(family=family) for family in ("qwen3", "qwen3_moe", "gemma2", "gemma3_text")),
]
IDS = ["qwen2", "llama", "no groups", "qwen3", "qwen3_moe", "gemma2", "gemma3"]


@functools.partial(jax.jit, static_argnames=("cfg", "remat"))
def full(params, cfg, token_id, remat=False):
    """Logits of plain causal rows."""
    position = jnp.broadcast_to(jnp.arange(token_id.shape[1])[None], token_id.shape)
    end = jnp.full_like(token_id, token_id.shape[1])
    return decoder.logits(
        params,
        cfg,
        decoder.apply(params, cfg, token_id=token_id, position=position, token_end=end, remat=remat, attention="dense"),
    )


@functools.partial(jax.jit, static_argnames="cfg")
def extend(params, cfg, cache, token_id, start):
    hidden, cache = decoder.extend(params, cfg, cache, token_id=token_id, start=start)
    return decoder.logits(params, cfg, hidden), cache


def tokens(seed: int, rows: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(32, size=(rows, TOKENS))


def cached(params, cfg, token_id, chunks: list[int]) -> tuple[np.ndarray, decoder.Cache]:
    """Logits of all tokens, read in chunks of the given sizes."""
    cache, at, found = decoder.empty_cache(cfg, slots=len(token_id), capacity=TOKENS + 4), 0, []
    for size in chunks:
        part, cache = extend(params, cfg, cache, token_id[:, at : at + size], np.full(len(token_id), at))
        found, at = [*found, np.asarray(part)], at + size
    return np.concatenate(found, axis=1), cache


def chunkings() -> st.SearchStrategy[list[int]]:
    """Sizes 1, 2 and 5 that add up to TOKENS."""
    sizes = st.lists(st.sampled_from([1, 2, 5]), min_size=TOKENS, max_size=TOKENS)
    return sizes.map(lambda sizes: [size for i, size in enumerate(sizes) if sum(sizes[: i + 1]) <= TOKENS]).map(
        lambda sizes: [*sizes, *[1] * (TOKENS - sum(sizes))]
    )


@pytest.mark.parametrize("cfg", CONFIGS, ids=IDS)
@settings(max_examples=5)
@given(chunkings(), st.integers(0, 99))
def test_the_cache_equals_the_whole_however_it_is_filled(cfg, chunks, seed):
    params, token_id = small.parameters(cfg), tokens(seed)
    np.testing.assert_allclose(cached(params, cfg, token_id, chunks)[0], full(params, cfg, token_id), atol=2e-5)


@settings(max_examples=10)
@given(st.lists(st.integers(0, TOKENS - 1), min_size=3, max_size=3), st.integers(0, 99))
def test_slots_are_cut_back_each_to_its_own_length(starts, seed):
    """What lies behind a slot's start is overwritten before it can be seen."""
    cfg, start = small.config(), np.array(starts)
    params, token_id, new = small.parameters(cfg), tokens(seed), tokens(seed + 1)[:, :2]
    _, cache = cached(params, cfg, token_id, [5, 5, 2])
    found, _ = extend(params, cfg, cache, new, start)
    for slot, at in enumerate(start):
        row = np.concatenate([token_id[slot, :at], new[slot], np.zeros(TOKENS - at, int)])[None]
        np.testing.assert_allclose(found[slot], full(params, cfg, row)[0, at : at + 2], atol=2e-5)


def test_unstacked_blocks_are_the_same_policy():
    cfg, token_id = small.config(), tokens(0)
    params = small.parameters(cfg)
    flat = {**params, "blocks": decoder.unstack(params["blocks"], cfg.n_layers)}
    np.testing.assert_array_equal(
        cached(flat, cfg, token_id, [5, 5, 2])[0], cached(params, cfg, token_id, [5, 5, 2])[0]
    )


def test_padding_never_moves_a_logit():
    """B105: other ids behind the text, or in a padding token of a packed row, change no bit."""
    cfg = small.config()
    params, token_id = small.parameters(cfg), tokens(1)
    other = np.where(np.arange(TOKENS)[None] < 7, token_id, 31)
    np.testing.assert_array_equal(full(params, cfg, token_id)[:, :7], full(params, cfg, other)[:, :7])


def test_remat_changes_neither_values_nor_gradients():
    cfg, token_id = small.config(), tokens(2)
    params = small.parameters(cfg)

    @functools.partial(jax.jit, static_argnames="remat")
    @jax.value_and_grad
    def loss(params, remat):
        return jnp.square(full(params, cfg, token_id, remat=remat)).mean()

    plain, gradient = loss(params, remat="none")
    for remat in (True, "full", "dots"):
        again, other = loss(params, remat=remat)
        assert float(plain) == pytest.approx(float(again), rel=1e-6)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), gradient, other)


def test_an_unknown_policy_is_refused_by_name():
    with pytest.raises(InputError, match="remat 'dot' is unknown; did you mean 'dots'"):
        decoder.check_remat("dot")


def test_the_names_and_shapes_that_other_rooms_rely_on():
    shapes = jax.eval_shape(functools.partial(decoder.init, cfg=CONFIGS[1]), jax.random.key(0))
    paths = {
        "/".join(key.key for key in path): leaf.shape for path, leaf in jax.tree_util.tree_flatten_with_path(shapes)[0]
    }
    assert paths == {
        "embed/embedding": (32, 16), "head/kernel": (16, 32), "final_norm/scale": (16,),
        "blocks/attn_norm/scale": (2, 16), "blocks/mlp_norm/scale": (2, 16),
        "blocks/attn/q/kernel": (2, 16, 4, 6), "blocks/attn/k/kernel": (2, 16, 2, 6),
        "blocks/attn/v/kernel": (2, 16, 2, 6), "blocks/attn/o/kernel": (2, 4, 6, 16),
        "blocks/mlp/gate/kernel": (2, 16, 24), "blocks/mlp/up/kernel": (2, 16, 24),
        "blocks/mlp/down/kernel": (2, 24, 16),
    }  # fmt: skip


def test_fresh_parameters_have_the_stated_deviation():
    cfg = DecoderConfig(**{**vars(small.config()), "d_model": 64, "d_ff": 256, "head_dim": 32})
    params = jax.jit(decoder.init, static_argnames="cfg")(jax.random.key(0), cfg=cfg)
    blocks = params["blocks"]
    assert float(blocks["attn"]["q"]["kernel"].std()) == pytest.approx(64**-0.5, rel=0.05)
    assert float(blocks["attn"]["o"]["kernel"].std()) == pytest.approx((4 * 32 * 4) ** -0.5, rel=0.05)
    assert float(blocks["mlp"]["down"]["kernel"].std()) == pytest.approx((256 * 4) ** -0.5, rel=0.05)
    assert not jnp.array_equal(blocks["mlp"]["up"]["kernel"][0], blocks["mlp"]["up"]["kernel"][1])


def test_seven_billion_parameters_by_shape_alone():
    cfg = configs.read(model("qwen2.5-7b"), DecoderConfig, "model")
    params = jax.eval_shape(functools.partial(decoder.init, cfg=cfg), jax.random.key(0))
    assert decoder.parameter_count(params) == 7_615_616_512
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    sharding.shard(params, sharding.make_mesh(sharding.MeshConfig(1, 2, 1, 4)))
    rows = jax.ShapeDtypeStruct((2, 4096), jnp.int32)
    out = jax.eval_shape(functools.partial(full, cfg=cfg, remat=True), params, token_id=rows)
    assert (out.shape, out.dtype) == ((2, 4096, 152064), jnp.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "qwen4"}, "family 'qwen4': unknown; did you mean 'qwen"),
        ({"n_kv_heads": 3}, "4 query heads cannot share 3"),
        ({"head_dim": 5}, "even head_dim, got 5"),
        ({"qkv_bias": False}, "family 'qwen2' needs qkv_bias=True, got False"),
        ({"attention_cap": 30.0}, "family 'qwen2' needs attention_cap=None, got 30.0"),
        ({"family": "qwen3_moe", "qkv_bias": False, "qk_norm": True}, "'qwen3_moe' needs experts, got None"),
        ({"rope_scaling": RopeScaling("ntk", 2.0, None, None, None)}, "rope_scaling of kind 'ntk': unknown"),
        ({"rope_scaling": RopeScaling("linear", 2.0, 1.0, None, None)}, "belong to kinds 'llama3' and 'yarn'"),
        ({"rope_scaling": RopeScaling("llama3", 2.0, 4.0, 1.0, 64)}, "needs low < high"),
    ],
)
def test_impossible_architectures_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(small.config(), **change)


def test_parts_that_fit_no_model_are_refused():
    with pytest.raises(InputError, match="cannot go to 6 of 5 experts"):
        moe = small.config(family="qwen3_moe")
        dataclasses.replace(moe, experts=dataclasses.replace(moe.experts, per_token=6))
    with pytest.raises(InputError, match="one rope_theta for all layers"):
        dataclasses.replace(small.config(family="gemma2"), rope_theta=5.0)
    with pytest.raises(InputError, match="full_every of 2 or more"):
        gemma = small.config(family="gemma3_text")
        dataclasses.replace(gemma, sliding=dataclasses.replace(gemma.sliding, full_every=1))


def test_experts_against_a_loop():
    """Every token by itself: softmax over all experts, the two likeliest, weights that add up to one."""
    cfg = small.config(family="qwen3_moe")
    weights = jax.tree.map(lambda leaf: np.asarray(leaf[0]), small.parameters(cfg)["blocks"]["moe"])
    x = np.random.default_rng(0).normal(size=(2, 7, 16)).astype(np.float32)
    found = decoder.Moe(cfg).apply({"params": weights}, x)
    for row, token in np.ndindex(2, 7):
        scores = np.exp(x[row, token] @ weights["router"]["kernel"])
        chosen = np.argsort(-scores)[:2]
        expected = 0.0
        for expert in chosen:
            gate, up = (x[row, token] @ weights[name]["kernel"][expert] for name in ("gate", "up"))
            inside = gate / (1 + np.exp(-gate)) * up
            expected += scores[expert] / scores[chosen].sum() * (inside @ weights["down"]["kernel"][expert])
        np.testing.assert_allclose(found[row, token], expected, atol=1e-5)


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text"])
def test_a_layer_with_a_window_sees_no_further(family):
    """With one layer, which slides, the last token does not change by a bit with what lies five or more back."""
    cfg = small.config(family=family, n_layers=1)
    params, token_id = small.parameters(cfg), tokens(3)
    other = token_id.copy()
    other[:, :-5] = (other[:, :-5] + 1) % 32
    np.testing.assert_array_equal(full(params, cfg, token_id)[:, -1], full(params, cfg, other)[:, -1])
    other[:, -5] = (other[:, -5] + 1) % 32
    assert not np.array_equal(full(params, cfg, token_id)[:, -1], full(params, cfg, other)[:, -1])
