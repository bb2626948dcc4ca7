"""Groups worked by hand. Deviations are the population's."""

from __future__ import annotations

from math import nan, sqrt

import numpy as np
import pytest
from ml_collections import ConfigDict

from rlsearch.credit import registry
from rlsearch.credit.algebra import Credit
from rlsearch.credit.registry import CreditConfig
from rlsearch.losses import reduce
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind, Nodes
from rlsearch.tree.pack import pad_nodes
from tests.credit.by_node import estimate


def choose(estimator: str, **options) -> CreditConfig:
    return registry.read(ConfigDict({"estimator": estimator, **options}))


GRPO = choose("grpo", scale=True, drop_equal=False)
DROP = choose("grpo", scale=True, drop_equal=True)
TREE = choose("tree_grpo", scale=True, drop_equal=False)


def answer(reward: float, episode: int = 0, tokens: int = 2) -> Branch:
    return Branch(Kind.ANSWER, 0, [1] * tokens, [-1.0] * tokens, episode=episode, rewards=[reward])


def chains(*episodes: tuple[int, float]) -> Nodes:
    """One tree per (question, reward), in this order."""
    trees = [(q, Branch(Kind.PROMPT, 0, [0], children=[answer(r, i)])) for i, (q, r) in enumerate(episodes)]
    return build(trees, terms=1).nodes


def credit(nodes: Nodes, config: CreditConfig, reduction=reduce.token) -> Credit:
    """Of a table padded to one size, so that one compilation serves all."""
    return estimate(pad_nodes(nodes, 32, leaves=16, depth=4, fan=4), config, weights=(1.0,), reduction=reduction)


def of_leaves(found: Credit, nodes: Nodes) -> np.ndarray:
    """The advantage of each episode at its leaf."""
    return np.asarray(found.advantage.node)[: len(nodes.end), 0][nodes.episode >= 0]


def weights(found: Credit, nodes: Nodes) -> list[float]:
    """What a token of each leaf weighs."""
    return np.asarray(found.weight.sum(axis=1))[: len(nodes.end)][nodes.episode >= 0].tolist()


def advantages(nodes: Nodes, config: CreditConfig) -> list[float]:
    return of_leaves(credit(nodes, config), nodes).tolist()


def test_two_prompts_of_five_copies():
    """B002, B003: a group is a question and nothing else; 1,0,0,0,0 has mean .2 and deviation .4."""
    nodes = chains(*[(q, r) for q in (0, 1) for r in (1, 0, 0, 0, 0)])
    assert advantages(nodes, GRPO) == pytest.approx([2, -0.5, -0.5, -0.5, -0.5] * 2)
    unscaled = choose("grpo", scale=False, drop_equal=False)
    assert advantages(nodes, unscaled) == pytest.approx([0.8, -0.2, -0.2, -0.2, -0.2] * 2)


def test_questions_that_differ_do_not_share_a_group():
    """B003: rewards 1,1 and 0,0 under one key would give +-1."""
    assert advantages(chains((0, 1), (0, 1), (1, 0), (1, 0)), GRPO) == [0, 0, 0, 0]


def test_prompts_that_alternate():
    """B089: rows p1,p2,p1,p2 with rewards 1,0,1,0."""
    assert advantages(chains((0, 1), (1, 0), (0, 1), (1, 0)), GRPO) == [0, 0, 0, 0]


def test_a_partial_group_does_not_shift_the_next():
    """B051: three of four rows (1,0,0), then 1,1,1,1. The first has mean 1/3 and deviation sqrt(2)/3."""
    nodes = chains((0, 1), (0, 0), (0, 0), (1, 1), (1, 1), (1, 1), (1, 1))
    assert advantages(nodes, GRPO) == pytest.approx([sqrt(2), -sqrt(0.5), -sqrt(0.5), 0, 0, 0, 0])


def test_rewards_that_cannot_be_scored_are_left_out():
    """B087: NaN,NaN,NaN,1 is a group of one; NaN,1,0 a group of two."""
    alone = credit(chains((0, nan), (0, nan), (0, nan), (0, 1)), GRPO)
    assert not np.asarray(alone.advantage.node).any()
    assert np.asarray(alone.kept).sum() == 1
    nodes = chains((0, nan), (0, 1), (0, 0))
    assert advantages(nodes, GRPO) == pytest.approx([0, 1, -1])
    assert weights(credit(nodes, GRPO), nodes) == [0, 0.25, 0.25]


def test_a_term_without_weight_may_be_unscored():
    nodes = build([(0, Branch(Kind.PROMPT, 0, [0], children=[answer(1), answer(0, 1)]))], terms=1).nodes
    nodes = Nodes(**{**vars(nodes), "rewards": np.stack([nodes.rewards[:, 0], [nan] * 3], axis=1)})
    scored = estimate(nodes, GRPO, weights=(1.0, 0.0), reduction=reduce.token)
    assert of_leaves(scored, nodes).tolist() == pytest.approx([1, -1])


@pytest.mark.parametrize("config", [GRPO, DROP, TREE])
def test_a_group_of_one_is_worth_nothing(config):
    assert advantages(chains((0, 1.0)), config) == [0]


def test_equal_rewards_with_and_without_a_part_in_the_denominator():
    """B078: group 1,1 beside group 1,0, two tokens an episode. Kept, they pay KL and fill the denominator."""
    nodes = chains((0, 1), (0, 1), (1, 1), (1, 0))
    kept, dropped = credit(nodes, GRPO), credit(nodes, DROP)
    assert weights(kept, nodes) == [1 / 8] * 4
    assert weights(dropped, nodes) == [0, 0, 1 / 4, 1 / 4]
    assert of_leaves(kept, nodes).tolist() == of_leaves(dropped, nodes).tolist()


def test_an_episode_in_two_contexts_has_one_vote():
    """B090: rewards stand at leaves, so that what is split over rows or turns is counted once: mean of 1, .5 is .75."""
    later = Branch(Kind.ANSWER, 1, [1], [-1.0], episode=0, rewards=[1.0])
    query = Branch(Kind.QUERY, 0, [1], [-1.0], [Branch(Kind.OBSERVATION, 1, [2], children=[later])])
    nodes = build([(0, Branch(Kind.PROMPT, 0, [0], children=[query, answer(0.5, 1)]))], terms=1).nodes
    unscaled = choose("grpo", scale=False, drop_equal=False)
    assert advantages(nodes, unscaled) == pytest.approx([0.25, -0.25])
    found = credit(nodes, unscaled)
    assert np.asarray(found.advantage.node)[[1, 3], 0].tolist() == pytest.approx([0.25] * 2)  # both its turns
    assert np.asarray(found.weight.sum(axis=1))[[1, 3]].tolist() == pytest.approx([1 / 4] * 2)  # of four tokens


def test_an_episode_without_tokens_is_in_no_denominator():
    """B018: its reward still counts for the baseline, since it is an outcome of the question."""
    trees = [(0, Branch(Kind.PROMPT, 0, [0], children=[answer(1.0, 0, 2), answer(0.0, 1, 4), answer(0.0, 2, 0)]))]
    nodes = build(trees, terms=1).nodes
    assert weights(credit(nodes, GRPO, reduce.sequence), nodes)[:2] == pytest.approx([1 / 4, 1 / 8])
    assert weights(credit(nodes, GRPO, reduce.token), nodes)[:2] == pytest.approx([1 / 6, 1 / 6])
    assert advantages(nodes, GRPO) == pytest.approx([sqrt(2), -sqrt(0.5), 0])  # no token to credit


def test_tree_grpo_by_hand():
    """Two trees of one question with rewards (1, 0) and (0, 0).

    Within: the first has mean 1/2, deviation 1/2: 1, -1. The second is constant: 0, 0.
    Between all four: mean 1/4, deviation sqrt(3)/4: 3/sqrt(3) = sqrt(3), and -1/sqrt(3) for the others.
    """
    trees = [Branch(Kind.PROMPT, 0, [0], children=[answer(r, 2 * t + i) for i, r in enumerate(pair)])
             for t, pair in enumerate([(1, 0), (0, 0)])]  # fmt: skip
    nodes = build([(0, tree) for tree in trees], terms=1).nodes
    low = -1 / sqrt(3)
    assert advantages(nodes, TREE) == pytest.approx([1 + sqrt(3), -1 + low, low, low])


def test_between_trees_of_equal_leaves_tree_grpo_is_grpo():
    """Trees (1, 1) and (0, 0): nothing within, +-1 between. The two levels must not cancel."""
    trees = [Branch(Kind.PROMPT, 0, [0], children=[answer(r, 2 * r), answer(r, 2 * r + 1)]) for r in (1, 0)]
    assert advantages(build([(0, tree) for tree in trees], terms=1).nodes, TREE) == pytest.approx([1, 1, -1, -1])
