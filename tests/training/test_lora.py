"""An adapter is all that is trained: its gradient, its state, its checkpoints, and the one copy of what it is of."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import quickstart_lora
from rlsearch import settings, train
from rlsearch.errors import InputError
from rlsearch.interop.adapter import import_adapter
from rlsearch.interop.load import import_model
from rlsearch.models import lora, sharding
from rlsearch.sampling.engine import Engine
from rlsearch.tokenization.hub_files import read_json
from rlsearch.training import reinforce
from rlsearch.training.state import OptimizerConfig, fresh, make_optimizer
from rlsearch.training.workdir import Workdir
from tests import small as run
from tests.models import adapters, small
from tests.training import cases, stages, steps
from tests.training.stages import KL, Fuse
from tests.tree.random_forests import random_forest

SHAPE = {"width": 20, "targets": 9, "block": 2}
FOREST = {"seed": 1, "trees": 3, "depth": 3, "branching": 3, "longest": 4}
LORA = ConfigDict({"rank": 4, "alpha": 8.0, "matrices": ("q", "v", "o", "up", "down")})


@functools.cache
def parts():
    cfg = small.config()
    config = adapters.config(cfg)
    return config, small.parameters(cfg), adapters.noisy(cfg, config)


def taken(name: str, mesh=None, **shape: int):
    """Loss and gradient by the adapter of one step; the KL is relative to what it is added to."""
    config, base, adapter = parts()
    step = dataclasses.replace(cases.step(name), lora=config)
    shape = SHAPE | shape
    return steps.loss_and_gradient(adapter, base, random_forest(**FOREST), step, mesh or steps.mesh(), **shape)


@pytest.mark.parametrize("name", ["one pass", "gspo"])
def test_the_step_has_the_gradient_of_the_merged_policys_step(name):
    """In one pass with a KL, and in two without one."""
    config, base, adapter = parts()
    merged, step = lora.merge({**base, **adapter}, config), cases.step(name)
    loss, whole = steps.loss_and_gradient(merged, base, random_forest(**FOREST), step, steps.mesh(), **SHAPE)
    steps.assert_equal(taken(name), (loss, adapters.projected(whole, adapter, config)))


def test_a_step_over_a_mesh_is_that_of_one_device():
    loss, gradient = taken("one pass", steps.mesh(2, 2, model=2), block=4)
    expected, wanted = taken("one pass")
    assert loss == pytest.approx(expected, rel=1e-5)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), gradient, wanted)


def test_the_optimizer_keeps_the_adapter_alone_and_steps_leave_the_base_as_it_is():
    config, base, adapter = parts()
    optimizer = make_optimizer(OptimizerConfig(1e-2, 0, "constant", 0.9, 0.95, 0.1, 1.0), steps=3)
    mesh, before = steps.mesh(), jax.tree.map(np.array, base)
    state = fresh(adapter, optimizer, mesh)
    kept = [leaf.shape for leaf in jax.tree.leaves(state.opt_state) if leaf.shape]
    assert sorted(kept) == sorted(2 * [leaf.shape for leaf in jax.tree.leaves(adapter)])
    step = steps.compiled(dataclasses.replace(cases.step("one pass"), lora=config), optimizer, mesh)
    rows, used, nodes = steps.batch(random_forest(**FOREST), **SHAPE)
    placed = jax.device_put(base, sharding.shard(base, mesh))
    for _ in range(3):
        state, metrics, _ = step(state, placed, rows, used, nodes, None)
    assert (int(state.step), float(metrics["finite"])) == (3, 1.0)
    assert jax.tree.structure(state.params) == jax.tree.structure(adapter)
    assert all((new != old).any() for new, old in zip(*map(jax.tree.leaves, (state.params, adapter)), strict=True))
    jax.tree.map(np.testing.assert_array_equal, placed, before)


def learn(path: Path, **changes):
    """The stage from the small run's warm policy."""
    config = run.config(**({"loss.kl": KL, "rl.lora": LORA, "rl.optimizer.learning_rate": 0.1} | changes))
    workdir = Workdir(path, writes=True)
    workdir.open(config)
    state, _ = stages.learn(settings.read(config), run.warmed().params, workdir, Fuse())
    return state, workdir.rows("metrics.jsonl")


def test_sampler_and_step_agree_while_the_adapter_moves(tmp_path):
    """Also about the first step, which starts from the reference; and the corrected loss asks the step itself."""
    mismatch = ConfigDict({"kind": "truncated", "cap": 2.0})
    state, rows = learn(tmp_path / "run", **{"rl.updates_per_batch": 2, "loss.mismatch": mismatch})
    assert len(rows) == 5 and all(row["logp_gap"] < 1e-5 and row["clip_fraction"] == 0 for row in rows)
    assert abs(rows[0]["kl"]) < 1e-6 < 1e-3 < rows[-1]["kl"]
    assert all(leaf.any() for leaf in jax.tree.leaves(state.params))


def test_reference_base_and_sampler_share_one_copy(tmp_path, monkeypatch):
    seen, write = {}, Engine.write

    def make(*args, **kwargs):
        made = stages.policy_step(*args, **kwargs)
        return lambda state, reference, *rest: (seen.update(step=reference), made(state, reference, *rest))[1]

    def watched(self, params, writings):
        seen.update(sampler=params)
        return write(self, params, writings)

    monkeypatch.setattr(reinforce, "make_policy_step", make)
    monkeypatch.setattr(Engine, "write", watched)
    learn(tmp_path / "run", **{"rl.steps": 1})
    for where, params in seen.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(run.warmed().params)[0]:
            found = functools.reduce(lambda tree, key: tree[key.key], path, params)
            assert found.unsafe_buffer_pointer() == leaf.unsafe_buffer_pointer(), (where, path)


@pytest.mark.parametrize(("place", "count"), [("rl step", 2), ("checkpoint", 5)])
def test_interrupted_and_started_again(tmp_path, place, count):
    """Warm-up of the whole, then the adapter; its checkpoints hold it alone."""
    changes = {"rl.lora": LORA, "rl.steps": 3}
    with pytest.raises(KeyboardInterrupt):
        stages.run(tmp_path / "run", Fuse(place, count), **changes)
    again, straight = stages.run(tmp_path / "run", Fuse(), **changes), stages.run(tmp_path / "new", Fuse(), **changes)
    stages.assert_same(again, straight)
    assert list(again["params"]) == ["lora"]


def test_another_seed_is_another_adapter():
    made = [lora.init(jax.random.fold_in(jax.random.key(seed), reinforce.ADAPTER), small.config(), parts()[0])
            for seed in (0, 0, 1)]  # fmt: skip
    one, same, other = (tree["lora"]["blocks"]["attn"]["q"]["a"] for tree in made)
    assert (one == same).all() and (one != other).all()


def test_the_example_trains_and_leaves_a_model_an_adapter_and_what_it_is_of(tmp_path, monkeypatch):
    config = run.config(**{"rl.steps": 2, "rl.lora": quickstart_lora.get_config().rl.lora})
    mesh = run.one_device()
    monkeypatch.setattr(train.sharding, "make_mesh", lambda _: mesh)
    summary = train.train(config, tmp_path / "run")
    rows = [row for row in Workdir(tmp_path / "run", writes=False).rows("metrics.jsonl") if row["stage"] == "rl"]
    assert [row["step"] for row in rows] == [1, 2] and all(math.isfinite(row["loss"]) for row in rows)
    cfg, whole = import_model(tmp_path / "run" / "export")
    base = import_model(tmp_path / "run" / "base")[1]
    what, adapter = import_adapter(tmp_path / "run" / "adapter", cfg)
    assert (what.rank, set(what.matrices)) == (8, {"q", "k", "v", "o", "gate", "up", "down"})
    jax.tree.map(np.testing.assert_array_equal, whole, lora.merge({**base, **adapter}, what))
    assert not np.array_equal(whole["blocks"]["attn"]["o"]["kernel"], base["blocks"]["attn"]["o"]["kernel"])
    np.testing.assert_array_equal(whole["embed"]["embedding"], base["embed"]["embedding"])
    trained = sum(leaf.size for leaf in jax.tree.leaves(adapter))
    assert summary["parameters"] == trained + sum(leaf.size for leaf in jax.tree.leaves(base))


def test_what_the_model_has_no_place_for_is_refused_before_the_warm_up(tmp_path, monkeypatch):
    """Where the config is read; of a model that is imported, once that is."""
    config = run.config(**{"rl.lora": ConfigDict({"rank": 4, "alpha": 8.0, "matrices": ("head",)})})
    built = run.assembled()
    monkeypatch.setattr(train.sharding, "make_mesh", lambda _: built.mesh)
    monkeypatch.setattr(train, "assemble", lambda *args, **kwargs: built.parts)
    refused = functools.partial(pytest.raises, InputError, match="'head', but the head of this qwen2 model is its")
    with refused():
        settings.read(config)
    monkeypatch.setattr(settings, "_check_lora", lambda *args: None)
    with refused():
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_config_names_matrices_that_there_are():
    with pytest.raises(InputError, match=r"matrices has 'upp', which is unknown; did you mean 'up'\?"):
        settings.read(run.config(**{"rl.lora": ConfigDict({"rank": 4, "alpha": 8.0, "matrices": ("upp",)})}))
    with pytest.raises(InputError, match=r"config\.rl\.lora\.rnk: unknown key; did you mean 'rank'"):
        settings.read(run.config(**{"rl.lora": ConfigDict({"rnk": 4, "alpha": 8.0, "matrices": ("up",)})}))
    assert settings.read(run.config(**{"rl.lora": LORA})).rl.lora.scale == 2.0


@pytest.mark.parametrize("warmed", [False, True])
def test_an_adapter_of_an_imported_model_says_where_that_is_unless_a_warm_up_changed_it(tmp_path, warmed):
    config, built = run.config(**{"rl.lora": LORA} | ({} if warmed else {"warmup": None})), run.assembled()
    read, cfg = settings.read(config), built.parts.policy.model
    config.policy = ConfigDict({"kind": "huggingface", "path": str(tmp_path / "imported"), "dtype": "float32"})
    train.export(read, config, tmp_path, built.parts, adapters.noisy(cfg, read.rl.lora), built.params)
    said = read_json(tmp_path / "adapter" / "adapter_config.json")["base_model_name_or_path"]
    assert said == str(tmp_path / ("base" if warmed else "imported"))
    assert (tmp_path / "base").exists() == warmed and (tmp_path / "export").is_dir()
