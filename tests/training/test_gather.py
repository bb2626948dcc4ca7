"""The batch of several processes is the batch of one."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from launch.group import run
from launch.local import free_port
from tests.training import share, steps

ROOT = Path(__file__).parents[2]


def test_one_process_keeps_its_batch():
    whole = share.batch(0, 1)
    rows, blocks, nodes = share.global_batch(whole, steps.mesh())
    assert (blocks, nodes) == (whole.blocks, whole.nodes)
    jax.tree.map(np.testing.assert_array_equal, rows, whole.rows)


@pytest.mark.slow
def test_two_processes_make_the_step_of_one(tmp_path, monkeypatch):
    """Their questions are numbered alike, their rows are not equally many, and each sees the loss of both."""
    shares = [share.batch(i, 2) for i in range(2)]
    assert shares[0].blocks != shares[1].blocks
    monkeypatch.chdir(ROOT)
    coordinator = f"127.0.0.1:{free_port()}"
    module = [sys.executable, "-m", "tests.training.share", str(tmp_path), coordinator, "2"]
    assert run([[*module, str(i)] for i in range(2)]) == 0
    loss, gradient = share.loss_and_gradient(steps.mesh(), 0, 1)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(gradient)[0]]
    for process in range(2):
        saved = np.load(tmp_path / f"{process}.npz")
        found = jax.tree.unflatten(jax.tree.structure(gradient), [saved[path] for path in paths])
        steps.assert_equal((float(saved["loss"]), found), (loss, gradient))
