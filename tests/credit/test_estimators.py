"""Advantages and weights of whole tables against the slow twin, and what no reward may change."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.config import Call
from rlsearch.credit import registry
from rlsearch.credit.algebra import Credit
from rlsearch.credit.registry import ESTIMATORS, CreditConfig
from rlsearch.errors import InputError
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.tree.forest import Nodes
from rlsearch.tree.pack import pad_nodes
from tests.credit import plain, twins  # noqa: F401  (twins registers them)
from tests.credit.by_node import estimate as estimate_credit
from tests.tree.random_forests import forests

NODES = 512


def choose(estimator: str, **options) -> CreditConfig:
    return registry.read(ConfigDict({"estimator": estimator, **options}))


WEIGHTS = (1.0, 0.5)
INSIDE = {"gae", "lambda_return", "turn_gae"}  # estimators that need the batch's tokens


@functools.partial(jax.jit, static_argnames=("config", "weights", "reduction"))
def jitted(nodes: Nodes, config: CreditConfig, weights: tuple[float, ...], reduction: str) -> Credit:
    return estimate_credit(nodes, config, weights=weights, reduction=Call(reduction, REDUCTIONS[reduction], ()))


def estimate(nodes: Nodes, config: CreditConfig, weights: tuple[float, ...], reduction: str) -> Credit:
    padded = pad_nodes(nodes, NODES, leaves=512, depth=8, fan=128)
    return jax.tree.map(np.asarray, jitted(padded, config, weights, reduction))


def annotated(nodes: Nodes, names: tuple[str, ...], seed: int) -> Nodes:
    """With the notes that an estimator reads, drawn at random; negative ones and zeros among them."""
    rng = np.random.default_rng(seed)
    notes = {name: rng.choice([0.0, 0.0, 1.0, 0.25, -0.5], size=len(nodes.end)).astype(np.float32) for name in names}
    return dataclasses.replace(nodes, notes=notes)


EVERY = [(name, index) for name, cases in plain.OPTIONS.items() for index in range(len(cases))]
WHICH = pytest.mark.parametrize(("name", "index"), EVERY, ids=[f"{name}{index}" for name, index in EVERY])


def test_every_estimator_has_a_twin():
    """Those that look inside nodes are compared token by token in their own tests."""
    assert set(ESTIMATORS) - INSIDE == set(plain.TWINS)


@WHICH
@settings(max_examples=15)
@given(forests(contexts=True), st.booleans(), st.sampled_from(["token", "sequence", "node"]), st.integers(0, 99))
def test_equal_to_recursion(name, index, forest, drop_equal, reduction, seed):
    options = plain.OPTIONS[name][index]
    config = choose(name, drop_equal=drop_equal, **options)
    nodes = annotated(forest.nodes, config.chosen.notes, seed)
    credit = estimate(nodes, config, WEIGHTS, reduction)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(credit))
    table = plain.Table(nodes, WEIGHTS)
    answer = plain.TWINS[name](table, **options)
    kept = set(table.totals) & answer.varies if drop_equal else set(table.totals)
    part = {
        (leaf, node)
        for leaf in kept
        for node in table.paths[leaf]
        if table.tokens[node] and (leaf, node) not in answer.masked
    }
    weight = plain.leaf_weights(table, part, reduction)
    assert set(np.flatnonzero(credit.kept)) == kept
    for node in range(len(nodes.end)):
        leaves = table.below[node]
        for column, leaf in enumerate(leaves):
            found = credit.advantage.node[node, column], credit.weight[node, column]
            expected = answer.advantage.get((leaf, node), 0.0) if (leaf, node) in part else 0.0
            assert found == pytest.approx((expected, weight.get((leaf, node), 0.0)), abs=2e-5, rel=2e-5), (leaf, node)
        assert not credit.weight[node, len(leaves) :].any()


OUTCOME = [(name, index) for name, index in EVERY if ESTIMATORS[name].outcome]


@pytest.mark.parametrize(("name", "index"), OUTCOME, ids=[f"{name}{index}" for name, index in OUTCOME])
@settings(max_examples=5)
@given(forests(), st.sampled_from([0.1, 0.6, 1 / 3]), st.booleans())
def test_equal_rewards_are_worth_exactly_nothing(name, index, forest, value, drop_equal):
    """Through the weighted sum as well, whose rounding must not depend on the row."""
    config = choose(name, drop_equal=drop_equal, **plain.OPTIONS[name][index])
    rewards = np.where((forest.nodes.episode >= 0)[:, None], np.float32(value), np.float32(0))
    nodes = dataclasses.replace(forest.nodes, rewards=np.broadcast_to(rewards, forest.nodes.rewards.shape))
    credit = estimate(annotated(nodes, config.chosen.notes, 0), config, (0.7, 0.1), "token")
    assert not credit.advantage.node.any()
    assert credit.kept.any() != drop_equal


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
