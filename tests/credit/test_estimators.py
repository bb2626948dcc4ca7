"""Advantages and weights of whole tables against the slow twin, and what no reward may change."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.credit import estimators
from rlsearch.credit.algebra import Credit
from rlsearch.credit.estimators import CreditConfig
from rlsearch.errors import InputError
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.tree.forest import Nodes
from rlsearch.tree.pack import pad_nodes
from tests.credit import plain
from tests.tree.random_forests import forests

NODES = 512
WEIGHTS = (1.0, 0.5)


@functools.partial(jax.jit, static_argnames=("config", "weights", "reduction"))
def jitted(nodes: Nodes, config: CreditConfig, weights: tuple[float, ...], reduction: str) -> Credit:
    return estimators.estimate(nodes, config, weights=weights, reduction=REDUCTIONS[reduction])


def estimate(nodes: Nodes, config: CreditConfig, weights: tuple[float, ...], reduction: str) -> Credit:
    return jax.tree.map(np.asarray, jitted(pad_nodes(nodes, NODES), config, weights, reduction))


# Every estimator with and without each choice: each is compiled once.
CONFIGS = st.sampled_from(
    [
        CreditConfig("grpo", scale=True, drop_equal=True),
        CreditConfig("grpo", scale=False, drop_equal=False),
        CreditConfig("tree_grpo", scale=True, drop_equal=False),
        CreditConfig("tree_grpo", scale=False, drop_equal=True),
    ]
)


@given(forests(), CONFIGS, st.sampled_from(["token", "sequence"]))
def test_equal_to_recursion(forest, config, reduction):
    nodes = forest.nodes
    credit = estimate(nodes, config, WEIGHTS, reduction)
    values = plain.totals(nodes, WEIGHTS)
    advantage, varying = plain.advantages(nodes, values, config.estimator, scale=config.scale)
    kept = varying if config.drop_equal else set(values)
    weight = plain.leaf_weights(nodes, kept, reduction)
    expected = {
        "positive": {leaf: weight[leaf] * max(advantage[leaf], 0.0) for leaf in weight},
        "negative": {leaf: weight[leaf] * min(advantage[leaf], 0.0) for leaf in weight},
        "weight": weight,
    }
    assert set(np.flatnonzero(credit.kept)) == kept
    assert credit.advantage[sorted(kept)] == pytest.approx([advantage[leaf] for leaf in sorted(kept)], abs=1e-5)
    for node in range(len(nodes.end)):
        if not nodes.tokens[node]:
            continue  # weighs nothing: the loss reads credit at sampled tokens
        for name, by_leaf in expected.items():
            assert getattr(credit, name)[node] == pytest.approx(plain.node_sum(nodes, node, by_leaf), abs=1e-5), name


@given(forests(), CONFIGS, st.sampled_from(["token", "sequence"]))
def test_always_finite_and_zero_outside_of_kept_paths(forest, config, reduction):
    credit = estimate(forest.nodes, config, WEIGHTS, reduction)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(credit))
    assert (credit.advantage[~credit.kept] == 0).all()
    for node, end in enumerate(forest.nodes.end):
        if not credit.kept[node:end].any():
            assert credit.positive[node] == credit.negative[node] == credit.weight[node] == 0


@given(forests(), CONFIGS, st.sampled_from([0.1, 0.6, 1 / 3]))
def test_equal_rewards_are_worth_exactly_nothing(forest, config, value):
    """Through the weighted sum as well, whose rounding must not depend on the row."""
    rewards = np.where((forest.nodes.episode >= 0)[:, None], np.float32(value), np.float32(0))
    nodes = dataclasses.replace(forest.nodes, rewards=np.broadcast_to(rewards, forest.nodes.rewards.shape))
    credit = estimate(nodes, config, (0.7, 0.1), "token")
    assert not credit.positive.any()
    assert not credit.negative.any()
    assert credit.kept.any() != config.drop_equal


@given(forests())
def test_adding_a_constant_changes_nothing_and_scale_takes_a_factor(forest):
    config = CreditConfig("tree_grpo", scale=True, drop_equal=True)
    before = estimate(forest.nodes, config, WEIGHTS, "sequence")
    moved = dataclasses.replace(forest.nodes, rewards=4.0 * forest.nodes.rewards + 8.0)
    after = estimate(moved, config, WEIGHTS, "sequence")
    np.testing.assert_allclose(after.advantage, before.advantage, atol=1e-5)


@given(forests())
def test_group_means_are_zero(forest):
    """B091: the baseline is the group's own, not the batch's."""
    config = CreditConfig("grpo", scale=True, drop_equal=False)
    credit = estimate(forest.nodes, config, WEIGHTS, "token")
    for question in set(forest.nodes.question.tolist()):
        members = credit.advantage[: len(forest.nodes.end)][forest.nodes.question == question]
        assert members.sum() == pytest.approx(0, abs=1e-5)


def test_an_unknown_estimator_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"estimator 'tree_grppo': unknown; did you mean 'tree_grpo'\?"):
        CreditConfig("tree_grppo", scale=True, drop_equal=True)
