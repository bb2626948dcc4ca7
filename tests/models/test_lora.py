"""Adapters: a product by hand, the merged model as twin, gradients by the chain rule, and what is refused."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from rlsearch.errors import InputError
from rlsearch.models import decoder, lora, sharding
from rlsearch.models.lora import LoraConfig
from rlsearch.models.sharding import MeshConfig, make_mesh
from tests.models import adapters, small

TOKENS = 10
CONFIGS = [small.config(), small.config(family="llama", tied=False), small.config(family="qwen3_moe", tied=False)]
CONFIGS += [small.config(family=family) for family in ("qwen3", "gemma2", "gemma3_text")]
IDS = [cfg.family for cfg in CONFIGS]


def token_ids(rows: int = 2) -> np.ndarray:
    return np.random.default_rng(0).integers(32, size=(rows, TOKENS))


@functools.partial(jax.jit, static_argnames=("cfg", "remat"))
def full(params, cfg, token_id, remat="none"):
    """Logits of whole rows."""
    hidden = decoder.apply(
        params, cfg, token_id=token_id, position=jnp.broadcast_to(jnp.arange(TOKENS)[None], token_id.shape),
        token_end=jnp.full_like(token_id, TOKENS), remat=remat, attention="dense",
    )  # fmt: skip
    return decoder.logits(params, cfg, hidden)


@functools.partial(jax.jit, static_argnames="cfg")
def cached(params, cfg, token_id):
    """The same through the cache, in two pieces."""
    cache, found = decoder.empty_cache(cfg, slots=len(token_id), capacity=TOKENS), []
    for begin, end in ((0, 4), (4, TOKENS)):
        start = jnp.full(len(token_id), begin)
        hidden, cache = decoder.extend(params, cfg, cache, token_id=token_id[:, begin:end], start=start)
        found.append(decoder.logits(params, cfg, hidden))
    return jnp.concatenate(found, axis=1)


def both(cfg):
    """The same policy twice: with its adapter beside the matrices, and merged."""
    config = adapters.config(cfg)
    params = {**small.parameters(cfg), **adapters.noisy(cfg, config)}
    return lora.attach(params, config), lora.merge(params, config)


def test_a_product_by_hand():
    """x = (1, 2), W = 1, A = (1, -1)', B = (2, 3), alpha / r = 2: x W + 2 (x A) B = (1, 2) - 2 (2, 3) = (-3, -4)."""
    kernel, a, b = np.eye(2), np.array([[1.0], [-1.0]]), np.array([[2.0, 3.0]])
    params = {
        "blocks": {"mlp": {"gate": {"kernel": kernel[None]}, "up": {"kernel": kernel[None]}}},
        "lora": {"blocks": {"mlp": {"gate": {"a": a[None], "b": b[None]}}}},
    }
    params, config = jax.tree.map(jnp.asarray, params), LoraConfig(1, 2.0, ("gate",))
    apart = lora.attach(params, config)["blocks"]["mlp"]
    one = jax.tree.map(lambda leaf: leaf[0], apart)
    x = jnp.array([[1.0, 2.0]])
    np.testing.assert_allclose(decoder.Dense(2, use_bias=False).apply({"params": one["gate"]}, x), [[-3, -4]])
    np.testing.assert_allclose(decoder.Dense(2, use_bias=False).apply({"params": one["up"]}, x), [[1, 2]])
    merged = lora.merge(params, config)["blocks"]["mlp"]
    np.testing.assert_allclose(merged["gate"]["kernel"], [[[5, 6], [-4, -5]]])
    assert merged["up"]["kernel"] is params["blocks"]["mlp"]["up"]["kernel"]


@pytest.mark.parametrize("cfg", CONFIGS, ids=IDS)
def test_a_fresh_adapter_changes_nothing(cfg):
    """Its products are zero to the bit; a compiler may sum in another order where there is one more to sum."""
    config, params = adapters.config(cfg), small.parameters(cfg)
    fresh = {**params, **lora.init(jax.random.key(0), cfg, config)}
    jax.tree.map(np.testing.assert_array_equal, lora.merge(fresh, config), params)
    beside = lora.attach(fresh, config)
    np.testing.assert_allclose(full(beside, cfg, token_ids()), full(params, cfg, token_ids()), atol=5e-6)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(3, 16)), jnp.float32)
    plain, adapted = (jax.tree.map(lambda leaf: leaf[0], tree["blocks"]["attn"]["q"]) for tree in (params, beside))
    dense = decoder.Dense((4, 6), use_bias=cfg.qkv_bias)
    np.testing.assert_array_equal(dense.apply({"params": adapted}, x), dense.apply({"params": plain}, x))
    assert sum(bool(leaf.any()) for leaf in jax.tree.leaves(fresh["lora"])) == len(config.matrices)


@pytest.mark.parametrize("cfg", CONFIGS, ids=IDS)
def test_an_adapter_beside_the_matrices_is_the_merged_model(cfg):
    beside, merged = both(cfg)
    expected = full(merged, cfg, token_ids())
    scale = float(jnp.abs(expected).max())
    assert jax.tree.structure(merged) == jax.tree.structure(small.parameters(cfg))
    assert float(jnp.abs(expected - full(small.parameters(cfg), cfg, token_ids())).max()) > 0.05 * scale
    np.testing.assert_allclose(full(beside, cfg, token_ids()), expected, atol=1e-5 * scale)
    np.testing.assert_allclose(cached(beside, cfg, token_ids()), expected, atol=2e-5 * scale)


@pytest.mark.parametrize(("cfg", "remat"), [*((cfg, "none") for cfg in CONFIGS), (CONFIGS[0], "full")])
def test_gradients_are_those_of_the_merged_model_by_the_chain_rule(cfg, remat):
    config, params = adapters.config(cfg), small.parameters(cfg)
    adapter = adapters.noisy(cfg, config)

    def loss(policy):
        return jnp.square(full(policy, cfg, token_ids(), remat=remat)).mean()

    whole = jax.grad(loss)(lora.merge({**params, **adapter}, config))
    found = jax.grad(lambda trained: loss(lora.attach({**params, **trained}, config)))(adapter)
    expected = adapters.projected(whole, adapter, config)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for name, got, want in zip(names(found), jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(got - want) <= 1e-4 * np.linalg.norm(want), name
        assert np.linalg.norm(want) > 0


def names(tree) -> list[str]:
    return ["/".join(key.key for key in path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


def test_paths_and_shapes_are_those_of_the_matrices_with_the_rank_between():
    cfg = small.config(family="llama", tied=False)
    made = lora.init(jax.random.key(0), cfg, adapters.config(cfg, rank=5))
    found = dict(zip(names(made), [leaf.shape for leaf in jax.tree.leaves(made)], strict=True))
    assert found == {
        "lora/embed/a": (32, 5), "lora/embed/b": (5, 16), "lora/head/a": (16, 5), "lora/head/b": (5, 32),
        **{f"lora/blocks/attn/{name}/a": (2, 16, 5) for name in "qkv"},
        **{f"lora/blocks/attn/{name}/b": (2, 5, 2, 6) for name in "kv"},
        "lora/blocks/attn/q/b": (2, 5, 4, 6),
        "lora/blocks/attn/o/a": (2, 4, 6, 5), "lora/blocks/attn/o/b": (2, 5, 16),
        **{f"lora/blocks/mlp/{name}/a": (2, 16, 5) for name in ("gate", "up")},
        **{f"lora/blocks/mlp/{name}/b": (2, 5, 24) for name in ("gate", "up")},
        "lora/blocks/mlp/down/a": (2, 24, 5), "lora/blocks/mlp/down/b": (2, 5, 16),
    }  # fmt: skip
    assert {leaf.dtype for leaf in jax.tree.leaves(made)} == {jnp.dtype("float32")}


def test_a_is_uniform_within_one_over_the_root_of_its_inputs():
    cfg = small.config(d_model=400, head_dim=30)
    made = lora.init(jax.random.key(0), cfg, LoraConfig(50, 1.0, ("q", "k", "o")))["lora"]["blocks"]["attn"]
    assert not jnp.array_equal(made["q"]["a"], made["k"]["a"])
    for name, inputs in (("q", 400), ("o", 4 * 30)):
        assert float(jnp.abs(made[name]["a"]).max()) == pytest.approx(inputs**-0.5, rel=0.01)
        assert float(made[name]["a"].std()) == pytest.approx((3 * inputs) ** -0.5, rel=0.02)
        assert not jnp.array_equal(made[name]["a"][0], made[name]["a"][1])


def test_a_model_in_bfloat16_is_adapted_in_its_own_type_and_its_adapter_kept_in_float32():
    cfg = small.config(dtype="bfloat16", param_dtype="bfloat16")
    config = adapters.config(cfg)
    params = {**small.parameters(cfg), **adapters.noisy(cfg, config)}
    assert {leaf.dtype for leaf in jax.tree.leaves(lora.merge(params, config))} == {jnp.dtype("bfloat16")}
    assert {leaf.dtype for leaf in jax.tree.leaves(params["lora"])} == {np.dtype("float32")}
    assert np.isfinite(full(lora.attach(params, config), cfg, token_ids())).all()


@pytest.mark.parametrize("cfg", CONFIGS, ids=IDS)
def test_every_leaf_is_matched_by_one_row_of_the_sharding_table(cfg):
    for name in names(lora.init(jax.random.key(0), cfg, adapters.config(cfg))):
        assert len([row for row, _ in sharding.TABLE if re.search(rf"(^|/){row}$", f"params/{name}")]) == 1, name


def test_gradients_over_a_mesh_are_those_of_one_device():
    cfg, mesh = small.config(family="llama", tied=False), make_mesh(MeshConfig(2, 2, 1, 2))
    config, params = adapters.config(cfg), small.parameters(cfg)
    adapter = adapters.noisy(cfg, config)

    @jax.jit
    @jax.value_and_grad
    def loss(adapter, params, token_id):
        return jnp.square(full(lora.attach({**params, **adapter}, config), cfg, token_id)).mean()

    rows = jax.device_put(token_ids(4), jax.sharding.NamedSharding(mesh, P(("data", "fsdp"))))
    placed = [jax.device_put(tree, sharding.shard(tree, mesh)) for tree in (adapter, params)]
    assert placed[0]["lora"]["blocks"]["mlp"]["down"]["a"].addressable_shards[0].data.shape == (2, 12, 2)
    value, gradient = loss(*placed, rows)
    expected, wanted = loss(adapter, params, token_ids(4))
    assert float(value) == pytest.approx(float(expected), rel=1e-5)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), gradient, wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank 0 must be 1 or more"),
        ({"alpha": 0.0}, "alpha 0.0 above 0"),
        ({"alpha": float("nan")}, "alpha nan above 0"),
        ({"matrices": ("q", "gates")}, "matrices has 'gates', which is unknown; did you mean 'gate'?"),
        ({"matrices": ()}, r"matrices is \(\); name one or more of q, k, v, o, gate, up, down, embed, head"),
        ({"matrices": ("q", "q")}, "each once"),
    ],
)
def test_what_is_no_adapter_is_refused(change, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        LoraConfig(**{"rank": 2, "alpha": 2.0, "matrices": ("q",), **change})


def test_matrices_that_a_model_does_not_have_alone_are_refused_by_name():
    moe, tied = small.config(family="qwen3_moe"), small.config()
    with pytest.raises(InputError, match=r"'up', of which this qwen3_moe model has one for each of its 5 experts"):
        lora.check(LoraConfig(2, 2.0, ("q", "up")), moe)
    with pytest.raises(InputError, match=r"'head', but the head of this qwen2 model is its embedding"):
        lora.init(jax.random.key(0), tied, LoraConfig(2, 2.0, ("head",)))
    lora.check(LoraConfig(2, 2.0, ("q", "k", "v", "o")), moe)
