"""A forest is two integers: descendants are an interval, and the mask is the relation of a token to its path."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from rlsearch.tree.build import Branch, build
from rlsearch.tree.check import check
from rlsearch.tree.forest import NONE, Kind, leaves
from tests.tree.random_forests import ancestors, forests, visible


@given(forests())
def test_every_built_forest_passes_the_check(forest):
    check(forest)


@given(forests())
def test_descendants_are_an_interval(forest):
    index = np.arange(len(forest.nodes.end))
    for node, end in enumerate(forest.nodes.end):
        below = [other for other in index if node in ancestors(forest.nodes.parent, other)]
        assert below == list(range(node, end))


@given(forests())
def test_a_token_sees_exactly_its_path(forest):
    seen = visible(forest.token_end[None])[0]
    for query in range(len(seen)):
        assert np.flatnonzero(seen[query]).tolist() == ancestors(forest.prev, query)[::-1]


@given(forests())
def test_a_path_holds_the_tokens_of_the_nodes_above(forest):
    for token, node in enumerate(forest.token_node):
        path = ancestors(forest.prev, token)
        above = np.isin(forest.token_node[: token + 1], ancestors(forest.nodes.parent, node))
        assert path[::-1] == np.flatnonzero(above).tolist()
        assert forest.position[token] == len(path) - 1


@given(forests())
def test_leaves_end_episodes(forest):
    index = np.arange(len(forest.nodes.end))
    inner = np.isin(index, forest.nodes.parent)
    assert (leaves(forest.nodes) == ~inner).all()
    assert len(set(forest.nodes.episode[~inner])) == (~inner).sum()
    assert (forest.nodes.rewards[inner] == 0).all()


def test_a_hand_tree():
    """Prompt 5 6, which continues as 7 8 (sampled, then 9) and as 10 (sampled)."""
    first = Branch(Kind.QUERY, 0, [7, 8], [-1.0, -2.0], [Branch(Kind.OBSERVATION, 1, [9], episode=0, rewards=[1.0])])
    second = Branch(Kind.ANSWER, 0, [10], [-3.0], episode=1, rewards=[0.0])
    forest = build([(4, Branch(Kind.PROMPT, 0, [5, 6], children=[first, second]))], terms=1)
    assert forest.token_id.tolist() == [5, 6, 7, 8, 9, 10]
    assert forest.token_node.tolist() == [0, 0, 1, 1, 2, 3]
    assert forest.position.tolist() == [0, 1, 2, 3, 4, 2]
    assert forest.prev.tolist() == [NONE, 0, 1, 2, 3, 1]
    assert forest.token_end.tolist() == [6, 6, 5, 5, 5, 6]
    assert forest.sampled.tolist() == [False, False, True, True, False, True]
    assert forest.behavior_logp.tolist() == [0, 0, -1, -2, 0, -3]
    assert forest.nodes.end.tolist() == [4, 3, 3, 4]
    assert forest.nodes.parent.tolist() == [NONE, 0, 1, 0]
    assert forest.nodes.tokens.tolist() == [0, 2, 0, 1]
    assert forest.nodes.question.tolist() == [4, 4, 4, 4]
    assert forest.nodes.rewards.tolist() == [[0], [0], [1], [0]]


def test_an_empty_forest_is_one():
    forest = build([], terms=2)
    check(forest)
    assert forest.nodes.rewards.shape == (0, 2)


@pytest.mark.parametrize(
    ("root", "fault"),
    [
        (Branch(Kind.PROMPT, 0, [1, 2], [-1.0], episode=0), "2 sampled tokens with 1 log-probabilities"),
        (Branch(Kind.PROMPT, 0, [1]), "a leaf needs an episode"),
        (Branch(Kind.PROMPT, 0, [1], children=[Branch(Kind.ANSWER, 0, [2], episode=1)], episode=0), "must have none"),
        (Branch(Kind.PROMPT, 0, [1], episode=0, rewards=[1.0, 2.0]), "2 rewards, the forest has 1 terms"),
    ],
)
def test_branches_that_do_not_fit_together_are_refused(root, fault):
    with pytest.raises(ValueError, match=f"node 0: .*{fault}"):
        build([(0, root)], terms=1)
