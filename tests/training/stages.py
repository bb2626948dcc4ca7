"""Both stages of the small run, with a fuse that blows at a chosen place."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from rlsearch import settings, train
from rlsearch.sampling.engine import Engine
from rlsearch.training import reinforce, warmup
from rlsearch.training.checkpoint import Checkpoints
from rlsearch.training.workdir import Workdir
from tests import small

KL = ConfigDict({"coefficient": 0.01, "estimator": "k3", "place": "loss", "weights": {"kind": "uniform"}})
CHANGES = {
    "warmup.steps": 30, "warmup.log_every": 3, "warmup.checkpoint_every": 10, "rl.evaluate_every": 1,
    "loss.kl": KL,
}  # fmt: skip

# One compilation for all runs; the optimizers are all of the same config.
supervised_step = functools.cache(warmup.make_supervised_step)
policy_step = functools.cache(reinforce.make_policy_step)
optimizer = functools.cache(warmup.make_optimizer)
STEPS = (
    (warmup, "make_supervised_step", supervised_step, "warm-up step"),
    (reinforce, "make_policy_step", policy_step, "rl step"),
)


class Fuse:
    """Blows at the ``count``-th passing of ``place``; never where ``place`` is None."""

    def __init__(self, place: str | None = None, count: int = 0):
        self.place, self.count, self.passed = place, count, Counter()

    def pass_by(self, place: str) -> None:
        self.passed[place] += 1
        if place == self.place and self.passed[place] == self.count:
            raise KeyboardInterrupt

    def before(self, place: str, work):
        return lambda *args, **kwargs: (self.pass_by(place), work(*args, **kwargs))[1]

    def after(self, place: str, work):
        return lambda *args, **kwargs: (work(*args, **kwargs), self.pass_by(place))[0]


def run(path: Path, fuse: Fuse, **changes) -> dict[str, Any]:
    """Warm-up and reinforcement learning in ``path``; what they end with."""
    config = small.config(**(CHANGES | changes))
    read, built, workdir = settings.read(config), small.assembled(), Workdir(path, writes=True)
    workdir.open(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warmup, "make_optimizer", optimizer)
        patch.setattr(reinforce, "make_optimizer", optimizer)
        for stage, name, make, place in STEPS:
            patch.setattr(stage, name, lambda *a, make=make, at=place, **k: fuse.before(at, make(*a, **k)))
        patch.setattr(Checkpoints, "save", fuse.after("checkpoint", Checkpoints.save))
        patch.setattr(Workdir, "append", fuse.before("journal", Workdir.append))
        patch.setattr(Engine, "write", fuse.before("writing", Engine.write))
        params, _ = warmup.warm_up(
            read.warmup, built.params, model=built.parts.policy.model, mesh=built.mesh, workdir=workdir,
            demonstrator=small.demonstrator(config, built.parts),
        )  # fmt: skip
        state, _ = learn(read, params, workdir, fuse)
    return {"params": jax.device_get(state.params), "opt_state": jax.device_get(state.opt_state), **files(path)}


def learn(read: settings.Settings, params, workdir: Workdir, fuse: Fuse):
    """Reinforcement learning; an evaluation is the sum of the embeddings."""
    built = small.assembled()

    def evaluate(step: int, local) -> None:
        fuse.pass_by("evaluation")
        value = float(local["embed"]["embedding"].sum())
        workdir.append("evaluations.jsonl", {"stage": "rl", "step": step, "value": value})

    collector = train.make_collector(read, built.parts, share=1)
    return reinforce.reinforce(
        read.rl, params, questions=built.parts.task.train, collector=collector,
        step_config=train.make_step_config(read, built.parts),
        mesh=built.mesh, workdir=workdir, seed=0, evaluate=evaluate,
    )  # fmt: skip


def files(path: Path) -> dict[str, Any]:
    """Journals without their times, and snapshots."""
    workdir = Workdir(path, writes=False)
    journals = {name: workdir.rows(name) for name in ("metrics.jsonl", "evaluations.jsonl")}
    for row in itertools.chain(*journals.values()):
        row.pop("time", None)
    return journals | {file.name: file.read_text() for file in sorted((path / "rollouts").glob("*"))}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Bit for bit."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name in ("params", "opt_state"):
            jax.tree.map(np.testing.assert_array_equal, found[name], value)
        else:
            assert found[name] == value, name
