"""One table, every leaf matched exactly once, on eight devices."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from configs import models
from rlsearch import config as configs
from rlsearch.errors import InputError
from rlsearch.models import decoder, lora, sharding, value
from rlsearch.models.layout import ALONE, Layout
from rlsearch.models.sharding import FSDP, TABLE, MeshConfig, make_mesh
from rlsearch.training.state import TrainState
from tests.models import adapters, small

CONFIGS = [small.config(family=family, tied=tied) for family in ("qwen2", "llama") for tied in (True, False)]
CONFIGS += [small.config(family=family) for family in ("qwen3", "qwen3_moe", "gemma2", "gemma3_text")]


def shapes(cfg):
    return jax.eval_shape(functools.partial(decoder.init, cfg=cfg), jax.random.key(0))


def names(tree) -> list[str]:
    return ["/".join(key.key for key in path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


@pytest.mark.parametrize("cfg", CONFIGS)
def test_every_parameter_is_matched_by_one_row(cfg):
    for name in names(shapes(cfg)):
        assert len([pattern for pattern, _ in TABLE if re.fullmatch(pattern, name)]) == 1, name


def test_every_row_matches_some_parameter():
    critic = jax.eval_shape(value.from_policy, shapes(CONFIGS[0]))
    adapter = lora.init(jax.random.key(0), CONFIGS[1], adapters.config(CONFIGS[1]))
    known = {name for cfg in CONFIGS for name in names(shapes(cfg))} | set(names(critic)) | set(names(adapter))
    assert not [pattern for pattern, _ in TABLE if not any(re.fullmatch(pattern, name) for name in known)]


def test_optimizer_states_lie_as_their_parameters():
    params, mesh = shapes(CONFIGS[1]), make_mesh(MeshConfig(2, 2, 1, 2))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    state = TrainState(params, jax.eval_shape(optimizer.init, params), jax.ShapeDtypeStruct((), np.int32))
    placed = sharding.shard(state, mesh)
    adam = placed.opt_state[1][0]
    assert placed.params == adam.mu == adam.nu
    assert placed.step.spec == adam.count.spec == P()
    assert placed.params["blocks"]["mlp"]["down"]["kernel"].spec == P(None, "model", FSDP)


def test_each_device_holds_its_part():
    params, mesh = small.parameters(CONFIGS[1]), make_mesh(MeshConfig(2, 2, 1, 2))
    placed = jax.device_put(params, sharding.shard(params, mesh))
    assert placed["embed"]["embedding"].addressable_shards[0].data.shape == (16, 8)
    assert placed["blocks"]["attn"]["q"]["kernel"].addressable_shards[0].data.shape == (2, 8, 2, 6)
    jax.tree.map(np.testing.assert_array_equal, sharding.to_local(placed, mesh), params)


@pytest.mark.parametrize("axes", [(1, 8, 1, 1), (1, 1, 8, 1), (1, 2, 2, 2), (1, 1, 2, 4)])
@pytest.mark.parametrize("name", ["qwen2.5-7b", "qwen3-30b-a3b", "llama3.1-8b", "gemma3-4b"])
def test_no_large_parameter_of_a_released_model_is_on_every_device(name, axes):
    """Of what is not a norm or a bias, a device holds an eighth."""
    params = shapes(configs.read(models.model(name), decoder.DecoderConfig, name))
    for (path, leaf), place in zip(
        jax.tree_util.tree_flatten_with_path(params)[0],
        jax.tree.leaves(sharding.shard(params, make_mesh(MeshConfig(*axes)))),
        strict=True,
    ):
        part = np.prod(place.shard_shape(leaf.shape))
        small_one = path[-1].key in ("scale", "bias") or path[-2].key == "router"
        assert small_one or part * 8 == leaf.size, jax.tree_util.keystr(path)


def test_unmatched_and_doubly_matched_leaves_are_refused_by_name():
    params, mesh = shapes(CONFIGS[0]), make_mesh(MeshConfig(8, 1, 1, 1))
    with pytest.raises(InputError, match="parameter extra/kernel is matched by 0 rows"):
        sharding.shard({**params, "extra": {"kernel": jax.ShapeDtypeStruct((4,), np.float32)}}, mesh)
    with pytest.raises(InputError, match="parameter embed/embedding is matched by 2 rows"):
        sharding.shard(params, mesh, (*TABLE, ("embedding", P())))


def test_an_axis_that_does_not_divide_is_refused_by_name_and_shape():
    mesh = make_mesh(MeshConfig(1, 1, 1, 8))
    with pytest.raises(InputError, match=r"attn/k/bias of shape \(2, 2, 6\): 2 does not divide over model=8"):
        sharding.shard({"blocks": {"attn": {"k": shapes(CONFIGS[0])["blocks"]["attn"]["k"]}}}, mesh)


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ((2, 2, 1, 2), (2, 2, 1, 2)), ((-1, 2, 1, 1), (4, 2, 1, 1)), ((1, 1, 1, -1), (1, 1, 1, 8)),
        ((1, 2, -1, 2), (1, 2, 2, 2)),
    ],
)  # fmt: skip
def test_one_axis_takes_what_is_left(sizes, found):
    mesh = make_mesh(MeshConfig(*sizes))
    assert tuple(mesh.shape.values()) == found
    assert mesh.axis_names == ("data", "fsdp", "sequence", "model")
    assert set(mesh.axis_types) == {AxisType.Auto}


@pytest.mark.parametrize("sizes", [(3, 1, 1, 1), (-1, 3, 1, 1), (-1, -1, 1, 2), (16, 1, 1, 1), (4, 1, 1, 1)])
def test_meshes_that_do_not_fit_are_refused(sizes):
    with pytest.raises(InputError, match=r"config\.mesh: .* does not divide 8 devices"):
        make_mesh(MeshConfig(*sizes))


def test_rows_are_laid_over_both_data_axes():
    mesh = make_mesh(MeshConfig(2, 2, 1, 2))
    rows = sharding.to_global({"a": np.arange(24).reshape(2, 4, 3)}, mesh)["a"]
    assert rows.addressable_shards[0].data.shape == (2, 1, 3)
    np.testing.assert_array_equal(rows, np.arange(24).reshape(2, 4, 3))


@pytest.mark.parametrize("axes", [(2, 2, 1, 2), (1, 2, 2, 2), (2, 1, 4, 1)])
@pytest.mark.parametrize("family", ["qwen3_moe", "gemma2"])
def test_gradients_of_sharded_parameters_are_those_of_one_device(family, axes):
    """Experts lie over the model axis, rows over both data axes, tokens over the sequence axis."""
    changes = {"experts": {"count": 6, "per_token": 2, "d_ff": 12, "normalise": True}} if family == "qwen3_moe" else {}
    cfg, mesh = small.config(family=family, **changes), make_mesh(MeshConfig(*axes))
    params, token_id = small.parameters(cfg), np.random.default_rng(0).integers(32, size=(4, 12))

    @functools.partial(jax.jit, static_argnames="layout")
    @jax.value_and_grad
    def loss(params, token_id, layout):
        position = jnp.broadcast_to(jnp.arange(12)[None], token_id.shape)
        hidden = decoder.apply(
            params, cfg, token_id=token_id, position=position, token_end=jnp.full_like(token_id, 12), remat="full",
            attention="dense", layout=layout,
        )  # fmt: skip
        return jnp.square(decoder.logits(params, cfg, hidden)).mean()

    places = sharding.shard(params, mesh)
    rows = jax.device_put(token_id, jax.sharding.NamedSharding(mesh, P(("data", "fsdp"))))
    value_, gradient = loss(jax.device_put(params, places), rows, Layout.over(mesh))
    expected, wanted = loss(params, token_id, ALONE)
    assert float(value_) == pytest.approx(float(expected), rel=1e-5)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), gradient, wanted)
