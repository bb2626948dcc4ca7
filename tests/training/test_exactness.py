"""The law of exactness: a packed forest has the loss and the gradient of its paths, each computed on its own."""

from __future__ import annotations

import random
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlsearch.tree.build import build
from rlsearch.tree.forest import Forest
from rlsearch.tree.pack import pack
from tests.models import small
from tests.training import per_path, steps
from tests.tree.random_forests import TERMS, random_forest, random_trees

SPLIT = {"width": 20, "targets": 9, "block": 2}
BUSHY = {"seed": 1, "trees": 3, "depth": 3, "branching": 3, "longest": 4}
SIZES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "trees": st.integers(1, 3),
        "depth": st.integers(1, 3),
        "branching": st.integers(1, 3),
        "longest": st.integers(1, 4),
    }
)


def models():
    return small.parameters(small.config()), small.parameters(small.config(), seed=7)


def assert_exact(forest: Forest, step, mesh, **shape: int) -> None:
    expected = per_path.loss_and_gradient(*models(), forest, step)
    steps.assert_equal(steps.loss_and_gradient(*models(), forest, step, mesh, **shape), expected)


@pytest.mark.parametrize("reduction", ["token", "sequence"])
@pytest.mark.parametrize("estimator", ["grpo", "tree_grpo"])
@settings(max_examples=8)
@given(sizes=SIZES)
@example(sizes=BUSHY)
def test_packed_equals_one_path_at_a_time(estimator, reduction, sizes):
    assert_exact(random_forest(**sizes), steps.config(estimator, reduction), steps.mesh(), **SPLIT)


@pytest.mark.parametrize(
    "shape",
    [
        {"width": 160, "targets": 120, "block": 1},
        pytest.param({"width": 40, "targets": 30, "block": 3}, marks=pytest.mark.slow),
        pytest.param({"width": 17, "targets": 5, "block": 1}, marks=pytest.mark.slow),
    ],
)
def test_any_packing_and_accumulation(shape):
    assert_exact(random_forest(**BUSHY), steps.config("tree_grpo", "sequence"), steps.mesh(), **shape)


@pytest.mark.parametrize(
    "axes",
    [
        pytest.param({"data": 2}, marks=pytest.mark.slow),
        {"data": 2, "fsdp": 2, "model": 2},
        pytest.param({"fsdp": 2}, marks=pytest.mark.slow),
        pytest.param({"model": 2}, marks=pytest.mark.slow),
        pytest.param({"data": 8}, marks=pytest.mark.slow),
        pytest.param({"fsdp": 8}, marks=pytest.mark.slow),
    ],
)
def test_any_mesh(axes):
    shape = {**SPLIT, "block": 8}
    assert_exact(random_forest(**BUSHY), steps.config("grpo", "token"), steps.mesh(**axes), **shape)


@pytest.mark.slow
def test_groups_of_equal_rewards_that_are_kept_pay_kl_and_entropy():
    step, forest = steps.config("grpo", "token", drop_equal=False), random_forest(**BUSHY)
    flat = replace(forest, nodes=replace(forest.nodes, rewards=np.zeros_like(forest.nodes.rewards)))
    assert abs(per_path.loss_and_gradient(*models(), flat, step)[0]) > 1e-3
    assert_exact(flat, step, steps.mesh(), **SPLIT)


@settings(max_examples=5)
@given(SIZES, st.integers(0, 99))
def test_the_order_of_trees_and_siblings_does_not_matter(sizes, seed):
    step, trees, shuffled = steps.config("grpo", "token"), random_trees(**sizes), random.Random(seed)

    def shuffle(branch):
        children = [shuffle(child) for child in branch.children]
        return replace(branch, children=shuffled.sample(children, k=len(children)))

    other = [(question, shuffle(root)) for question, root in shuffled.sample(trees, k=len(trees))]
    found = [
        steps.loss_and_gradient(*models(), build(forest, terms=TERMS), step, steps.mesh(), **SPLIT)
        for forest in (trees, other)
    ]
    steps.assert_equal(found[1], found[0])


def test_the_example_is_not_trivial():
    """Splits, several blocks, ratios beyond the clips, tokens shared by good and bad episodes: or it proves little."""
    forest, step = random_forest(**BUSHY), steps.config("grpo", "token")
    assert pack(forest, width=20, targets=9, multiple=2).repeated
    assert steps.batch(forest, **SPLIT)[1] >= 3
    _, metrics, credit = steps.take(*models(), forest, step, steps.mesh(), **SPLIT)
    assert 0.2 < metrics["clip_fraction"] < 0.9
    assert metrics["kl"] > 0.1
    value = np.asarray(credit.advantage.node)
    assert ((value > 0).any(axis=1) & (value < 0).any(axis=1)).any()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(metrics))
