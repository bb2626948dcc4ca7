"""Checkpoints: what is restored is what was saved, or an error that says what to delete."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
import pytest

from rlsearch.errors import InputError
from rlsearch.training.checkpoint import open_checkpoints
from rlsearch.training.state import OptimizerConfig, TrainState, fresh, make_optimizer
from tests.models import small as small_model
from tests.small import one_device

# TensorStore reports the damage a second time, to nobody.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

OPTIMIZER = OptimizerConfig(
    learning_rate=0.1, warmup_steps=1, schedule="cosine", b1=0.9, b2=0.95, weight_decay=0.0, clip_norm=1.0
)


def state(value: float) -> TrainState:
    """A state filled with ``value``, its counters included."""
    optimizer = make_optimizer(OPTIMIZER, steps=10)
    made = fresh(small_model.parameters(small_model.config()), optimizer, one_device())
    return jax.tree.map(lambda leaf: jax.device_put(jnp.full_like(leaf, value), leaf.sharding), made)


def equal(one: TrainState, other: TrainState) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: a.dtype == b.dtype and bool((a == b).all()), one, other)))


@pytest.fixture
def saved(tmp_path) -> Path:
    with open_checkpoints(tmp_path / "rl", keep=2) as checkpoints:
        for step in (2, 4, 6):
            checkpoints.save(step, state(step), {"seconds": step / 2, "questions": {"next_index": step}})
    return tmp_path / "rl"


def restored(directory: Path):
    with open_checkpoints(directory, keep=2) as checkpoints:
        return checkpoints.latest(), *checkpoints.restore(state(0))


def test_the_newest_is_restored_whole(saved):
    step, found, record = restored(saved)
    assert step == 6
    assert equal(found, state(6))
    assert record == {"seconds": 3.0, "questions": {"next_index": 6}}
    assert jax.tree.map(lambda leaf: leaf.sharding, found) == jax.tree.map(lambda leaf: leaf.sharding, state(0))


def test_only_the_newest_are_kept(saved):
    assert sorted(path.name for path in saved.iterdir() if path.name.isdigit()) == ["4", "6"]


def test_a_save_under_way_holds_the_values_of_its_moment(tmp_path):
    """Saving returns at once, and the next step reuses the buffers."""
    double = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 2, tree), donate_argnums=0)
    with open_checkpoints(tmp_path / "rl", keep=1) as checkpoints:
        now = state(3)
        checkpoints.save(1, now, {})
        for _ in range(3):
            now = double(now)
    assert equal(restored(tmp_path / "rl")[1], state(3))


def files(directory: Path) -> list[str]:
    """The record, the manifest and the largest file, which holds parameters."""
    every = [path for path in directory.rglob("*") if path.is_file()]
    largest = max(every, key=lambda path: path.stat().st_size)
    return [str(path.relative_to(directory)) for path in every if path == largest or path.parent.name == "record"] + [
        "state/manifest.ocdbt"
    ]


def test_a_file_cut_short_is_noticed_and_the_older_checkpoint_serves(saved):
    """What is restored is right, or the directory to delete is named."""
    refused = 0
    for name in files(saved / "6"):
        whole = (saved / "6" / name).read_bytes()
        (saved / "6" / name).write_bytes(whole[: len(whole) // 2])
        try:
            assert equal(restored(saved)[1], state(6)), name
        except InputError as error:
            refused += 1
            assert str(saved / "6") in str(error)
            assert "delete that directory" in str(error)
        (saved / "6" / name).write_bytes(whole)
    assert refused >= 2
    assert equal(restored(saved)[1], state(6)), "nothing was lost by trying"
    shutil.rmtree(saved / "6")
    step, found, _ = restored(saved)
    assert (step, equal(found, state(4))) == (4, True)


def test_a_file_that_is_gone_is_noticed(saved):
    for name in files(saved / "6"):
        (saved / "6" / name).rename(saved.parent / "aside")
        try:
            step, found, _ = restored(saved)
            assert equal(found, state(step)), name
        except InputError as error:
            assert str(saved) in str(error)
        (saved.parent / "aside").rename(saved / "6" / name)


def test_a_save_that_was_interrupted_does_not_count(saved):
    shutil.copytree(saved / "6", saved / "8.orbax-checkpoint-tmp")
    assert restored(saved)[0] == 6


def test_another_model_is_refused(saved):
    other = jax.tree.map(lambda leaf: leaf, state(0))
    other.params["embed"]["embedding"] = jnp.zeros((3, 5))
    with open_checkpoints(saved, keep=2) as checkpoints, pytest.raises(InputError, match="cannot be read"):
        checkpoints.restore(other)


@pytest.fixture
def ctrl_c():
    """Ctrl-C as a terminal has it; where the tests were started in the background it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_until_a_save_is_under_way(ctrl_c, monkeypatch, tmp_path):
    save = ocp.CheckpointManager.save

    def interrupted(self, *args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)
        return save(self, *args, **kwargs)

    monkeypatch.setattr(ocp.CheckpointManager, "save", interrupted)
    with pytest.raises(KeyboardInterrupt), open_checkpoints(tmp_path / "rl", keep=1) as checkpoints:
        checkpoints.save(5, state(5), {})
    assert equal(restored(tmp_path / "rl")[1], state(5))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_failure_still_waits_for_the_copy(tmp_path):
    with pytest.raises(RuntimeError, match="stop"), open_checkpoints(tmp_path / "rl", keep=1) as checkpoints:
        checkpoints.save(5, state(5), {})
        raise RuntimeError("stop")
    assert equal(restored(tmp_path / "rl")[1], state(5))
