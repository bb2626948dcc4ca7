"""The quickstart in small: the same parts and the same keys, sized for a test."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import math
import tempfile
from pathlib import Path
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from configs.quickstart import get_config
from rlsearch import assemble, settings
from rlsearch import config as configs
from rlsearch.models import decoder, sharding
from rlsearch.models.sharding import MeshConfig
from rlsearch.sampling import automaton
from rlsearch.sampling.engine import Engine
from rlsearch.training.demonstrations import Demonstrator
from rlsearch.training.reinforce import reinforce
from rlsearch.training.warmup import WarmupConfig, warm_up
from rlsearch.training.workdir import Workdir


def config(**changes) -> ConfigDict:
    """Four training worlds, two held out, a decoder of two layers; ``{"rl.steps": 2}`` changes a value."""
    small = get_config()
    small.mesh = ConfigDict({"data": -1, "fsdp": 1, "sequence": 1, "model": 1})
    small.task.train_questions, small.task.heldout_questions = 12, 6
    small.task.worlds.update(training=4, heldout=2, names=60, persons=24, cities=8, countries=4, companies=6)
    small.policy.update(vocab_size=520, vocab_corpora=4, vocab_questions=40)
    small.policy.model.update(d_model=32, n_layers=2, n_heads=2, n_kv_heads=2, head_dim=16, d_ff=48, max_positions=160)
    small.warmup.update(steps=60, log_every=10, checkpoint_every=20, rows=8, keep=2)
    small.warmup.optimizer.update(learning_rate=1e-2, warmup_steps=5)
    small.expander.size = 4
    small.sampling.update(slots=(16,), max_context=96, max_turn_tokens=6, buckets=(1, 48), chunk=4)
    small.rl.update(steps=5, checkpoint_every=2, snapshot_every=2, snapshot_trees=2)
    small.rl.optimizer.warmup_steps = 1
    small.rl.batch.update(questions=4, row_tokens=128, row_targets=48, block_rows=8, blocks=4, nodes=256)
    # After so short a warm-up hardly any answer is right: what the policy does earns too, so groups carry a signal.
    small.reward = ConfigDict({"terms": (("exact_match", 1.0), ("valid", 0.5), ("searches", 0.1))})
    small.update_from_flattened_dict(changes)
    return small


SECTIONS = ("expander", "reward", "notes", "scorer", "credit", "loss")


def trains(method: ConfigDict, path: Path) -> None:
    """Two steps of the small run with a method's sections, after its warm-up; fails where something is not finite."""
    from rlsearch import train  # here, since it defines flags: a run whose config imports this module has its own

    made = config(**{"rl.steps": 2, "rl.checkpoint_every": 2, "rl.snapshot_every": 0})
    for section in SECTIONS:
        made[section] = method[section]
    if "terms" in method.reward and method.reward.terms == (("exact_match", 1.0),):
        made.reward = config().reward  # after so short a warm-up hardly any answer is right
    for key in ("values", "merge_prefixes", "critic_optimizer", "critic_trunk", "updates_per_batch"):
        made.rl[key] = method.rl[key]
    read, start = settings.read(made), warmed()
    workdir = Workdir(path / "run", writes=True)
    workdir.open(made)
    state, _ = reinforce(
        read.rl, start.params, questions=start.parts.task.train, step_config=train.make_step_config(read, start.parts),
        collector=dataclasses.replace(
            train.make_collector(read, start.parts, share=1), engine=engine(start.parts, slots=(64,))
        ), mesh=start.mesh, workdir=workdir, seed=0,
        evaluate=lambda step, local: None,
    )  # fmt: skip
    rows = workdir.rows("metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    assert all(math.isfinite(row[name]) for row in rows for name in ("loss", "grad_norm") if name in row)
    assert any(row.get("grad_norm", 0.0) > 0 for row in rows)
    assert int(state.step) > 0


class Small(NamedTuple):
    """The parts of the small run and the parameters of its policy, on one of the eight devices."""

    config: ConfigDict
    parts: assemble.Parts
    params: decoder.Params
    mesh: jax.sharding.Mesh
    workdir: Workdir


@functools.cache
def assembled() -> Small:
    """The small run before any training; made once a process."""
    folder = tempfile.TemporaryDirectory(prefix="rlsearch_small_")
    atexit.register(folder.cleanup)
    small, workdir = config(), Workdir(Path(folder.name) / "run", writes=True)
    workdir.open(small)
    parts = assemble.assemble(small, workdir.path, writes=True)
    return Small(small, parts, parts.policy.params, one_device(), workdir)


@functools.cache
def warmed() -> Small:
    """The small run after its warm-up: the policy asks and answers, mostly wrongly."""
    small = assembled()
    params, _ = warm_up(
        configs.read(small.config.warmup, WarmupConfig, "config.warmup"), small.params,
        model=small.parts.policy.model, demonstrator=demonstrator(small.config, small.parts), mesh=small.mesh,
        workdir=small.workdir,
    )  # fmt: skip
    return small._replace(params=params)


def one_device() -> jax.sharding.Mesh:
    """A mesh of one device, on which a step compiles fastest."""
    return sharding.make_mesh(MeshConfig(data=1, fsdp=1, sequence=1, model=1), devices=jax.devices()[:1])


def demonstrator(small: ConfigDict, parts: assemble.Parts, **changes) -> Demonstrator:
    """The demonstrator of the small run."""
    warmup = configs.read(small.warmup, WarmupConfig, "config.warmup")
    made = Demonstrator(
        worlds=tuple(parts.task.worlds.values()), traces=warmup.traces, hops=(1, 2, 3), env=parts.task.env,
        tokenizer=parts.policy.tokenizer, template=parts.scene.template, max_observation_tokens=40,
        rows_of_step=warmup.rows, row_tokens=warmup.row_tokens, row_targets=warmup.row_targets, seed=0, process=0,
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def engine(parts: assemble.Parts, *, env=None, mesh=None, **changes) -> Engine:
    """Another engine for the same policy, with some sampling settings changed, or for another environment."""
    tokenizer = parts.policy.tokenizer
    stops = automaton.join((env or parts.task.env).stops, tokenizer.token_bytes())
    sampling = dataclasses.replace(parts.engine.sampling, **changes)
    return Engine(parts.policy.model, sampling, stops, end_ids=tokenizer.eos_ids, mesh=mesh)
