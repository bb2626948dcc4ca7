"""Advantages and weights of whole tables against the slow twin, and what no reward may change."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.config import Call
from rlsearch.credit import registry
from rlsearch.credit.algebra import Credit
from rlsearch.credit.estimate import estimate as estimate_credit
from rlsearch.credit.registry import CreditConfig
from rlsearch.errors import InputError
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.tree.forest import Nodes
from rlsearch.tree.pack import pad_nodes
from tests.credit import plain
from tests.tree.random_forests import forests

NODES = 512


def choose(estimator: str, **options) -> CreditConfig:
    return registry.read(ConfigDict({"estimator": estimator, **options}))


WEIGHTS = (1.0, 0.5)


@functools.partial(jax.jit, static_argnames=("config", "weights", "reduction"))
def jitted(nodes: Nodes, config: CreditConfig, weights: tuple[float, ...], reduction: str) -> Credit:
    return estimate_credit(nodes, config, weights=weights, reduction=Call(reduction, REDUCTIONS[reduction], ()))


def estimate(nodes: Nodes, config: CreditConfig, weights: tuple[float, ...], reduction: str) -> Credit:
    return jax.tree.map(
        np.asarray, jitted(pad_nodes(nodes, NODES, leaves=512, depth=8, fan=128), config, weights, reduction)
    )


# Every estimator with and without each choice: each is compiled once.
CONFIGS = st.sampled_from(
    [
        choose("grpo", scale=True, drop_equal=True),
        choose("grpo", scale=False, drop_equal=False),
        choose("tree_grpo", scale=True, drop_equal=False),
        choose("tree_grpo", scale=False, drop_equal=True),
    ]
)


@given(forests(), CONFIGS, st.sampled_from(["token", "sequence"]))
def test_equal_to_recursion(forest, config, reduction):
    nodes = forest.nodes
    credit = estimate(nodes, config, WEIGHTS, reduction)
    values = plain.totals(nodes, WEIGHTS)
    advantage, varying = plain.advantages(nodes, values, config.estimator.name, scale=config.estimator["scale"])
    kept = varying if config.drop_equal else set(values)
    weight = plain.leaf_weights(nodes, kept, reduction)
    assert set(np.flatnonzero(credit.kept)) == kept
    for node, end in enumerate(nodes.end):
        leaves = [leaf for leaf in range(node, end) if nodes.episode[leaf] >= 0]
        for column, leaf in enumerate(leaves):
            counts = bool(nodes.tokens[node]) and leaf in weight
            found = credit.advantage.node[node, column], credit.weight[node, column]
            expected = (advantage[leaf], weight[leaf]) if counts else (0.0, 0.0)
            assert found == pytest.approx(expected, abs=1e-5)
        assert not credit.weight[node, len(leaves) :].any()


@given(forests(), CONFIGS, st.sampled_from(["token", "sequence"]))
def test_always_finite_and_zero_outside_of_kept_paths(forest, config, reduction):
    credit = estimate(forest.nodes, config, WEIGHTS, reduction)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(credit))
    for node, end in enumerate(forest.nodes.end):
        if not credit.kept[node:end].any():
            assert not credit.advantage.node[node].any()
            assert not credit.weight[node].any()


@given(forests(), CONFIGS, st.sampled_from([0.1, 0.6, 1 / 3]))
def test_equal_rewards_are_worth_exactly_nothing(forest, config, value):
    """Through the weighted sum as well, whose rounding must not depend on the row."""
    rewards = np.where((forest.nodes.episode >= 0)[:, None], np.float32(value), np.float32(0))
    nodes = dataclasses.replace(forest.nodes, rewards=np.broadcast_to(rewards, forest.nodes.rewards.shape))
    credit = estimate(nodes, config, (0.7, 0.1), "token")
    assert not credit.advantage.node.any()
    assert credit.kept.any() != config.drop_equal


@given(forests())
def test_adding_a_constant_changes_nothing_and_scale_takes_a_factor(forest):
    config = choose("tree_grpo", scale=True, drop_equal=True)
    before = estimate(forest.nodes, config, WEIGHTS, "sequence")
    moved = dataclasses.replace(forest.nodes, rewards=4.0 * forest.nodes.rewards + 8.0)
    after = estimate(moved, config, WEIGHTS, "sequence")
    np.testing.assert_allclose(after.advantage.node, before.advantage.node, atol=1e-5)


@given(forests())
def test_group_means_are_zero(forest):
    """B091: the baseline is the group's own, not the batch's."""
    config = choose("grpo", scale=True, drop_equal=False)
    credit = estimate(forest.nodes, config, WEIGHTS, "token")
    leaf_value = credit.advantage.node[: len(forest.nodes.end), 0]
    for question in set(forest.nodes.question.tolist()):
        leaves = (forest.nodes.question == question) & (forest.nodes.episode >= 0) & (forest.nodes.tokens > 0)
        if (leaves == ((forest.nodes.question == question) & (forest.nodes.episode >= 0))).all():
            assert leaf_value[leaves].sum() == pytest.approx(0, abs=1e-5)


def test_an_unknown_estimator_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"estimator 'tree_grppo': unknown; did you mean 'tree_grpo'\?"):
        choose("tree_grppo", scale=True, drop_equal=True)
