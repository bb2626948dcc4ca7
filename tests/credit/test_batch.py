"""Normalisation over the batch and over tasks by hand."""

from __future__ import annotations

from math import exp, nan, sqrt

import numpy as np
import pytest

from tests.credit.hand import Chain, chains, credit, ends, outcomes

THREE = ((0, 1.0), (0, 0.0), (1, 1.0), (1, 1.0), (2, 4.0), (2, 0.0))


def test_reinforce_baseline_by_hand():
    """Means .5, 1 and 2 leave +-.5, 0, 0, +-2: mean square 8.5/6. The equal question gets exactly 0."""
    deviation = sqrt(8.5 / 6)
    found = ends(outcomes(*THREE), "reinforce_baseline")
    assert found == pytest.approx([0.5 / deviation, -0.5 / deviation, 0, 0, 2 / deviation, -2 / deviation])
    assert found[2:4] == [0, 0]


def test_batch_normalised_by_hand():
    """GRPO gives +-1, 0, 0, +-1, mean square 4/6: the batch has deviation 1 again at +-sqrt(1.5)."""
    assert ends(outcomes(*THREE), "batch_normalised") == pytest.approx(np.array([1, -1, 0, 0, 1, -1]) * sqrt(1.5))


BASELINED = ("reinforce_baseline", "batch_normalised")


@pytest.mark.parametrize("name", BASELINED)
def test_the_baseline_is_the_group_s_own(name):
    """B091: questions of means .5 and 10.5; over the whole batch the first would be negative throughout."""
    found = ends(outcomes((0, 1), (1, 10), (0, 0), (1, 11)), name)
    assert found == pytest.approx([1, -1, -1, 1])


@pytest.mark.parametrize("name", BASELINED)
def test_nothing_comes_of_equal_rewards(name):
    """B087: nor of one episode, nor of none that can be scored."""
    for nodes in (outcomes((0, 0.1), (0, 0.1), (0, 0.1)), outcomes((0, 1.0)), outcomes((0, nan), (0, nan))):
        assert not credit(nodes, name).advantage.node.any()
    assert ends(outcomes((0, nan), (0, 1), (0, 0)), name) == pytest.approx([0, 1, -1])


def test_persistent_by_hand():
    """Rewards 1, 0 against .5 and 1 against .25: differences .5, -.5, .75, mean .25, variance .875/3."""
    nodes = outcomes((0, 1), (0, 0), (1, 1), baseline=(0.5, 0.5, 0.25))
    expected = np.array([0.25, -0.75, 0.5]) / sqrt(0.875 / 3)
    assert ends(nodes, "persistent") == pytest.approx(expected)


@pytest.mark.parametrize("name", ["persistent", "persistent_weighted"])
def test_persistent_baselines_need_no_group_and_no_spread(name):
    """Two questions of one episode each: .75 and -.25. Then 1 against .5 and .5 against 0: equal, so nothing."""
    assert ends(outcomes((0, 1), (1, 0), baseline=(0.25, 0.25)), name) == pytest.approx([1, -1])
    for nodes in (outcomes((0, 1), (1, 0.5), baseline=(0.5, 0)), outcomes((0, 1), baseline=(0.25,))):
        assert not credit(nodes, name).advantage.node.any()
        assert not credit(nodes, name, drop_equal=True).kept.any()
    assert ends(outcomes((0, nan), (0, 1), (1, 0), baseline=(nan, 0, 0)), name) == pytest.approx([0, 1, -1])


def test_token_weights_by_hand():
    """One token with difference 1, three with 0: mean 1/4, variance (9/16 + 3/16) / 4 = 3/16: sqrt(3), -1/sqrt(3).

    The third episode has no tokens, so its difference of 100 is nobody's.
    """
    nodes = chains(
        Chain(0, 1.0, tokens=[1]), Chain(0, 0.0, [{}, {}], tokens=[1, 2]), Chain(0, 100.0, tokens=[0]),
    )  # fmt: skip
    nodes = type(nodes)(**{**vars(nodes), "notes": {"baseline": np.zeros(len(nodes.end), np.float32)}})
    assert ends(nodes, "persistent_weighted")[:2] == pytest.approx([sqrt(3), -1 / sqrt(3)])


def test_a_batch_without_tokens_is_worth_nothing():
    nodes = chains(Chain(0, 1.0, tokens=[0], leaf={"baseline": 0.5}), Chain(0, 0.0, tokens=[0]))
    found = credit(nodes, "persistent_weighted")
    assert not found.advantage.node.any()
    assert not found.weight.any()


def test_task_reweighted_by_hand():
    """Questions 1,0,0,0 and 1,1,1,0 of one task: variance 3/16 each, mean 1/2 over both.

    Thresholds halfway: 3/8 and 5/8, pass rates 1/4 and 3/4. Centred over sqrt(3)/4: sqrt(3), -1/sqrt(3) thrice, and
    the mirror image. What is rare for its question is weighted by exp(1/4), the rest by exp(-1/4).
    """
    nodes = outcomes(*[(0, r) for r in (1, 0, 0, 0)], *[(1, r) for r in (1, 1, 1, 0)], task=[0.0] * 8)
    rare, common = sqrt(3) * exp(0.25), exp(-0.25) / sqrt(3)
    expected = [rare, -common, -common, -common, common, common, common, -rare]
    assert ends(nodes, "task_reweighted", smoothing=0.5, strength=1.0) == pytest.approx(expected)


def test_a_task_of_greater_rewards_weighs_no_more():
    """Task 0 pays 0 and 1, task 1 pays 0 and 10; without the tasks the second would be worth ten times the first."""
    nodes = outcomes((0, 1), (0, 0), (1, 10), (1, 0), task=[0.0, 0.0, 1.0, 1.0])
    assert ends(nodes, "task_reweighted", smoothing=1.0, strength=0.0) == pytest.approx([1, -1, 1, -1])
    nodes = outcomes((0, 1), (0, 0), (1, 10), (1, 0), task=[0.0] * 4)
    root = sqrt((0.25 + 25) / 2)
    expected = np.array([0.5, -0.5, 5, -5]) / root
    assert ends(nodes, "task_reweighted", smoothing=1.0, strength=0.0) == pytest.approx(expected)


def test_a_question_counts_once_in_its_task_however_many_episodes_it_has():
    """1,0,1,0 has variance 1/4 and 3,0 has 9/4: mean 5/4, where six episodes would have 11/12."""
    nodes = outcomes(*[(0, r) for r in (1, 0, 1, 0)], (1, 3), (1, 0), task=[0.0] * 6)
    expected = np.array([0.5, -0.5, 0.5, -0.5, 1.5, -1.5]) / sqrt(1.25)
    assert ends(nodes, "task_reweighted", smoothing=1.0, strength=0.0) == pytest.approx(expected)


def test_the_threshold_is_the_task_s_where_nothing_is_its_own():
    """1/2, 1/4 beside an easy 1, 1: the task's mean 11/16 fails both, so the rate is 0 and weights are exp(+-1/2).

    Variances 1/64 and 0 have mean 1/128, and 1/8 over its root is sqrt(2). Equal rewards are worth exactly 0.
    """
    nodes = outcomes((0, 0.5), (0, 0.25), (1, 1), (1, 1), task=[3.0] * 4)
    found = ends(nodes, "task_reweighted", smoothing=0.0, strength=1.0)
    assert found == pytest.approx([sqrt(2) * exp(0.5), -sqrt(2) * exp(-0.5), 0, 0])
    assert found[2:] == [0, 0]


def test_a_question_with_one_episode_is_in_no_mean_of_its_task():
    """B087: nor is one that cannot be scored."""
    whole = outcomes((0, 1), (0, 0), (1, 9), (2, nan), task=[0.0] * 4)
    options = {"smoothing": 0.25, "strength": 1.0}
    assert ends(whole, "task_reweighted", **options) == pytest.approx([1, -1, 0, 0])
