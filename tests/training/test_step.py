"""The jitted steps: updates, counts, metrics, and what a step that goes wrong leaves behind."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest

from rlsearch.models import sharding
from rlsearch.training.state import TrainState, fresh
from rlsearch.training.step import make_supervised_step, target_logps
from rlsearch.tree.forest import Rows
from tests.models import small
from tests.training import per_path, steps
from tests.tree.random_forests import random_forest

SHAPE = {"width": 20, "targets": 9, "block": 2}
FOREST = {"seed": 1, "trees": 3, "depth": 3, "branching": 3, "longest": 4}
SGD = optax.sgd(1.0)


def batch() -> tuple[Rows, int, object]:
    return steps.batch(random_forest(**FOREST), **SHAPE)


def take(rows: Rows, used: int, nodes, *, updates: int = 1) -> tuple[TrainState, list[dict[str, float]]]:
    """Steps of plain gradient descent from the small model; its other seed is the reference."""
    mesh, cfg = steps.mesh(), small.config()
    state, reference, found = fresh(small.parameters(cfg), SGD, mesh), small.parameters(cfg, seed=7), []
    for _ in range(updates):
        state, metrics, _ = steps.compiled(steps.config("grpo", "token"), SGD, mesh)(
            state, reference, rows, used, nodes, None
        )
        found.append({name: float(value) for name, value in metrics.items()})
    return state, found


def assert_same(tree, other, **tolerance):
    jax.tree.map(functools.partial(np.testing.assert_allclose, **tolerance), tree, other)


def test_an_update_is_the_gradient_times_the_rate():
    before, step = small.parameters(small.config()), steps.config("grpo", "token")
    _, gradient = per_path.loss_and_gradient(
        before, small.parameters(small.config(), seed=7), random_forest(**FOREST), step
    )
    state, [metrics] = take(*batch())
    assert_same(state.params, jax.tree.map(np.subtract, before, gradient), atol=2e-5)
    assert int(state.step) == 1
    assert metrics["finite"] == 1
    assert metrics["grad_norm"] == pytest.approx(float(optax.tree.norm(gradient)), rel=1e-4)


def test_what_stands_in_unused_slots_does_not_matter():
    """B084: a sentinel is a legal number; not even one that is not finite may reach the loss or its gradient."""
    rows, used, nodes = batch()
    state, [metrics] = take(rows, used, nodes)
    for sentinel in (1.0, np.nan, -np.inf):
        spoiled = np.where(rows.target >= 0, rows.behavior_logp, np.float32(sentinel))
        other, [found] = take(dataclasses.replace(rows, behavior_logp=spoiled), used, nodes)
        assert found == metrics
        assert_same(other.params, state.params, rtol=0)


def test_padding_tokens_do_not_matter():
    """B105: another id in the padding changes no bit."""
    rows, used, nodes = batch()
    padding = (rows.position == 0) & (rows.token_end == np.arange(1, SHAPE["width"] + 1)[None, None])
    padding[..., 0] = False  # a root of one node may look the same at the start of a row
    assert padding[:used].any()
    other, [found] = take(dataclasses.replace(rows, token_id=np.where(padding, 31, rows.token_id)), used, nodes)
    state, [metrics] = take(rows, used, nodes)
    assert found == metrics
    assert_same(other.params, state.params, rtol=0)


def test_at_the_behaviour_policy_nothing_is_clipped():
    """And after an update of the same batch the ratio has moved (B068)."""
    rows, used, nodes = batch()
    own = rows.behavior_logp.copy()
    own[:used] = own_logps(rows, used, steps.config("grpo", "token").temperature)
    _, [first, second] = take(dataclasses.replace(rows, behavior_logp=own), used, nodes, updates=2)
    assert first["logp_gap"] < 1e-5
    assert first["clip_fraction"] == 0
    assert second["logp_gap"] > 1e-3


@jax.jit
def _logps(params, rows: Rows, temperature):
    return target_logps(
        params, small.config(), rows, attention="dense", temperature=temperature, remat=False, logp_chunk=0
    )[0]


def own_logps(rows: Rows, used: int, temperature: float) -> np.ndarray:
    """Log-probabilities of the targets under the small model itself, [used, R, S]."""
    blocks = [jax.tree.map(lambda leaf, m=m: leaf[m], rows) for m in range(used)]
    return np.stack([_logps(small.parameters(small.config()), block, temperature) for block in blocks])


def test_a_step_that_is_not_finite_leaves_the_state():
    rows, used, nodes = batch()
    wild = np.where(rows.target >= 0, np.float32(-400), rows.behavior_logp)
    state, [metrics] = take(dataclasses.replace(rows, behavior_logp=wild), used, nodes)
    assert metrics["finite"] == 0
    assert int(state.step) == 0
    assert_same(state.params, small.parameters(small.config()), rtol=0)


def test_a_batch_without_signal_has_no_gradient():
    """All rewards equal and dropped: loss and gradient are exactly zero, KL and entropy included."""
    rows, used, nodes = batch()
    flat = dataclasses.replace(nodes, rewards=np.full_like(nodes.rewards, 0.6))
    state, [metrics] = take(rows, used, flat)
    assert (metrics["loss"], metrics["grad_norm"], metrics["finite"]) == (0, 0, 1)
    assert_same(state.params, small.parameters(small.config()), rtol=0)


def test_the_supervised_step_is_the_mean_over_targets():
    """Over the blocks in use: what stands in the others is in neither sum nor count."""
    rows, used, _ = batch()
    cfg, mesh = small.config(), steps.mesh()
    expected = -own_logps(rows, used, 1.0)[rows.target[:used] >= 0].mean()
    step = make_supervised_step(cfg, SGD, mesh, attention="dense", remat=False, logp_chunk=4)
    state, metrics = step(fresh(small.parameters(cfg), SGD, mesh), sharding.to_global(rows, mesh), used)
    assert float(metrics["loss"]) == pytest.approx(expected, rel=1e-5)
    _, after = step(state, sharding.to_global(rows, mesh), used)
    assert float(after["loss"]) < expected
