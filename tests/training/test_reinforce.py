"""What stops the stage, what it leaves behind then, and what may not move."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from rlsearch import settings
from rlsearch.errors import InputError
from rlsearch.sampling.draw import Draw
from rlsearch.training import reinforce, snapshots
from rlsearch.training.collect import Collector
from rlsearch.training.workdir import Workdir
from tests import small
from tests.training import stages
from tests.training.stages import KL, Fuse

MERGED = {"rl.merge_prefixes": 1e-3}


def learn(path: Path, **changes):
    """The stage from the small run's warm policy."""
    config = small.config(**({"loss.kl": KL} | changes))
    workdir = Workdir(path, writes=True)
    workdir.open(config)
    state, _ = stages.learn(settings.read(config), small.warmed().params, workdir, Fuse())
    return jax.device_get(state.params), workdir.rows("metrics.jsonl")


@pytest.fixture(autouse=True)
def compiled_once(monkeypatch):
    monkeypatch.setattr(reinforce, "make_optimizer", stages.optimizer)
    monkeypatch.setattr(reinforce, "make_policy_step", stages.policy_step)


def spoil_batch(monkeypatch, at: int):
    """The log-probabilities of one batch come as NaN."""
    collect, calls = Collector.collect, iter(range(1, 100))

    def spoilt(self, *args, **kwargs):
        batch = collect(self, *args, **kwargs)
        value = np.full_like(batch.rows.behavior_logp, np.nan if next(calls) == at else 0)
        return dataclasses.replace(
            batch, rows=dataclasses.replace(batch.rows, behavior_logp=batch.rows.behavior_logp + value)
        )

    monkeypatch.setattr(Collector, "collect", spoilt)


def test_a_step_that_is_not_finite_stops_with_its_batch_saved_and_nothing_lost(monkeypatch, tmp_path):
    straight = learn(tmp_path / "straight")
    with monkeypatch.context() as patch:
        spoil_batch(patch, at=3)
        with pytest.raises(InputError, match=r"rl step 3: loss nan.* the batch is in .*step_3_process_0\.npz"):
            learn(tmp_path / "run")
    saved = np.load(tmp_path / "run" / "not_finite_step_3_process_0.npz")
    assert np.isnan(saved["rows.behavior_logp"]).all()
    assert saved["rows.token_id"].shape == (4, 8, 128)
    assert saved["nodes.rewards"].shape == (256, 3)
    assert [row["step"] for row in Workdir(tmp_path / "run", writes=False).rows("metrics.jsonl")] == [1, 2]
    params, rows = learn(tmp_path / "run")
    jax.tree.map(np.testing.assert_array_equal, params, straight[0])
    assert [row["loss"] for row in rows] == [row["loss"] for row in straight[1]]


def test_a_later_update_of_a_batch_that_is_not_finite_is_seen(monkeypatch, tmp_path):
    calls = iter(range(1, 100))

    def make(*args, **kwargs):
        step = stages.policy_step(*args, **kwargs)

        def spoilt(*args):
            state, metrics, credit = step(*args)
            return state, metrics | ({"finite": np.bool_(False)} if next(calls) == 4 else {}), credit

        return spoilt

    monkeypatch.setattr(reinforce, "make_policy_step", make)
    with pytest.raises(InputError, match="rl step 2: loss"):
        learn(tmp_path / "run", **{"rl.updates_per_batch": 2})


def test_a_rate_of_zero_moves_nothing(tmp_path):
    """And what the sampler and the step make of the same parameters stays the same."""
    params, rows = learn(tmp_path / "run", **{"rl.optimizer.learning_rate": 0.0, "rl.updates_per_batch": 2})
    jax.tree.map(np.testing.assert_array_equal, params, jax.device_get(small.warmed().params))
    assert len(rows) == 5
    assert all(row["logp_gap"] < 1e-5 and row["clip_fraction"] == 0 and abs(row["kl"]) < 1e-6 for row in rows)
    assert all(row["grad_norm"] > 0 for row in rows)


def test_sampler_and_step_at_different_temperatures_are_found_out(monkeypatch, tmp_path):
    collect = Collector.collect

    def cooler(self, *args, **kwargs):
        return collect(dataclasses.replace(self, draw=Draw(0.5)), *args, **kwargs)

    monkeypatch.setattr(Collector, "collect", cooler)
    with pytest.raises(InputError, match=r"rl step 1: log-probabilities of sampler and step differ by .* temperature"):
        learn(tmp_path / "run")


def test_a_cut_distribution_is_learned_from_where_the_difference_is_corrected(tmp_path):
    """The sampler's log-probabilities are then higher than the policy's, never lower."""
    cut = {"sampling.top_p": 0.8, "loss.mismatch": {"kind": "truncated", "cap": 2.0}, "rl.logp_gap": 1.0}
    _, rows = learn(tmp_path / "run", **cut)
    assert all(np.isfinite(row["loss"]) and 1e-3 < row["logp_gap"] < -np.log(0.8) for row in rows)


def test_groups_without_a_signal_make_no_step(tmp_path):
    """Everything equal: nothing to learn from, which is an ordinary batch."""
    params, rows = learn(tmp_path / "run", **{"reward.terms": (("exact_match", 0.0),)})
    jax.tree.map(np.testing.assert_array_equal, params, jax.device_get(small.warmed().params))
    assert [(row["dropped_groups"], row["loss"], row["tree_tokens"]) for row in rows] == [(4.0, 0.0, 0.0)] * 5


def test_merging_prefixes_gives_the_same_update_from_fewer_tokens(tmp_path):
    """Merged, a question's chains are one tree: each episode keeps its tokens, its reward and its credit."""
    (_, (apart, *_)), (_, (merged, *_)) = learn(tmp_path / "apart"), learn(tmp_path / "merged", **MERGED)
    assert merged["tree_tokens"] < apart["tree_tokens"]
    for name in ("episodes", "reward", "path_tokens", "sampled_tokens"):
        assert merged[name] == apart[name]
    for name in ("loss", "grad_norm"):
        assert merged[name] == pytest.approx(apart[name], rel=1e-5)


def test_what_is_shown_of_merged_prefixes_is_what_was_trained_on(monkeypatch, tmp_path):
    """Every node with a signal beside its own advantage: the nodes of the forest in order, dropped groups left out."""
    collect, batches = Collector.collect, []

    def kept(self, *args, **kwargs):
        batches.append(collect(self, *args, **kwargs))
        return batches[-1]

    monkeypatch.setattr(Collector, "collect", kept)
    learn(tmp_path / "run", **MERGED)
    batch, scene = batches[0], small.assembled().parts.scene
    reward = settings.read(small.config()).reward
    numbers = np.arange(1, 1 + len(batch.nodes.end), dtype=float)
    shown = snapshots.snapshot(
        batch, numbers, tokenizer=scene.tokenizer, reward=reward, step=1, trees=len(batch.roots)
    )["trees"]  # fmt: skip
    assert any(len(tree["nodes"]) > 1 + 2 * scene.env.most_turns for tree in shown)
    forest, found = batch.forest, {}
    for token in (token for tree in shown for node in tree["nodes"] for token in node["tokens"]):
        if token["sampled"] and token["advantage"]:
            found[token["advantage"]] = found.get(token["advantage"], "") + token["text"]
    expected = {
        float(1 + node): "".join(scene.tokenizer.decode([int(token)]) for token in forest.token_id[at])
        for node in range(len(forest.nodes.end))
        if len(at := np.flatnonzero((forest.token_node == node) & forest.sampled))
    }
    assert 0 < batch.metrics["dropped_groups"] < len(batch.questions)
    assert found == expected
