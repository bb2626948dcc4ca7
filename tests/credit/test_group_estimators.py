"""Leave-one-out and active sets by hand."""

from __future__ import annotations

from math import nan, sqrt

import numpy as np
import pytest

from tests.credit.hand import Chain, chains, credit, ends, outcomes, weights


def test_rloo_by_hand():
    """B002: two prompts of 1,0,0,0. The others of the first have mean 0: 1. Of a wrong one they have 1/3: -1/3."""
    nodes = outcomes(*[(q, r) for q in (0, 1) for r in (1, 0, 0, 0)])
    assert ends(nodes, "rloo") == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3] * 2)


def test_rloo_knows_a_group_by_its_question():
    """B003, B051, B089: neither order nor size of a group moves its neighbours."""
    nodes = outcomes((0, 1), (1, 3), (0, 0), (1, 3), (0, 0), (1, 3), (1, 3))
    assert ends(nodes, "rloo") == pytest.approx([1, 0, -0.5, 0, -0.5, 0, 0])


def test_rloo_without_others():
    """B087: one that can be scored among three that cannot is alone, as is a group of one."""
    assert ends(outcomes((0, nan), (0, nan), (0, 1), (1, 1)), "rloo") == [0, 0, 0, 0]
    assert ends(outcomes((0, nan), (0, 1), (0, 0)), "rloo") == pytest.approx([0, 1, -1])


def test_rloo_of_equal_rewards_is_exactly_nothing():
    nodes = outcomes((0, 0.1), (0, 0.1), (0, 0.1), (1, 1), (1, 0))
    assert ends(nodes, "rloo")[:3] == [0, 0, 0]
    assert credit(nodes, "rloo", drop_equal=True).kept.sum() == 2


def test_an_episode_in_two_contexts_is_left_out_once():
    """B090: rewards 1 (in two contexts), 0, 0. Both contexts are worth 1 - 0; the others 0 - 1/2."""
    nodes = chains(Chain(0, 1.0), Chain(0, 1.0), Chain(0, 0.0), Chain(0, 0.0))
    ids = np.where(nodes.episode > 0, nodes.episode - 1, nodes.episode)
    nodes = type(nodes)(**{**vars(nodes), "episode": ids})
    assert ends(nodes, "rloo") == pytest.approx([1, 1, -0.5, -0.5])


ATTEMPTS = ((0, 0.0), (0, 1.0), (0, 1.0), (0, 0.0))
NUMBERS = (0.0, 1.0, 0.0, -1.0)


def test_active_set_by_hand():
    """A task failed and then solved at the second attempt, and solved at once by another chain, which needs no second.

    Executed are 0, 1, 1: mean 2/3, deviation sqrt(2)/3. What was not executed has no vote, no token and no weight.
    """
    nodes = outcomes(*ATTEMPTS, attempt=NUMBERS)
    assert ends(nodes, "active_set", scale=False) == pytest.approx([-2 / 3, 1 / 3, 1 / 3, 0])
    assert ends(nodes, "active_set", scale=True) == pytest.approx([-sqrt(2), sqrt(0.5), sqrt(0.5), 0])
    assert weights(nodes, "active_set", scale=True) == pytest.approx(np.array([[1], [1], [1], [0]]) / 3)


def test_an_active_set_of_one_or_of_none():
    nodes = outcomes((0, 1.0), (0, 0.0), (1, 1.0), (1, 0.0), attempt=(0.0, -1.0, -1.0, -1.0))
    found = credit(nodes, "active_set", scale=True, drop_equal=False)
    assert not found.advantage.node.any()
    assert found.weight.sum() == 1
    assert not credit(nodes, "active_set", scale=True, drop_equal=True).weight.any()
