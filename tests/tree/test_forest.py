"""A forest is two integers: descendants are an interval, and the mask is the relation of a token to its path."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.tree.build import Branch, build, chain, group
from rlsearch.tree.check import check
from rlsearch.tree.forest import NONE, Kind, leaves
from tests.tree.random_forests import TERMS, ancestors, apart, forests, leaves_of, random_trees, trees, visible


@given(forests(contexts=True))
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


@given(trees(contexts=True), st.integers(1, 99))
def test_episodes_are_numbered_from_nought_in_order_of_their_first_leaves(branches, step):
    """Whatever ids they came with: those of a batch from which questions were left out exceed the table."""
    ends = [leaf for _, root in branches for leaf in leaves_of(root)]
    ids = list(dict.fromkeys(leaf.episode for leaf in ends))
    for leaf in ends:
        leaf.episode = 1000 - step * leaf.episode
    nodes = build(branches, terms=TERMS).nodes
    found = nodes.episode[nodes.episode != NONE].tolist()
    assert found == [ids.index((1000 - leaf.episode) // step) for leaf in ends]
    assert list(dict.fromkeys(found)) == list(range(len(ids)))


def test_contexts_of_an_episode_share_its_number_and_rewards():
    grown = random_trees(3, trees=4, depth=4, branching=3, longest=4, contexts=0.4)
    nodes = build(grown, terms=TERMS).nodes
    ends = np.flatnonzero(leaves(nodes))
    shared = [(a, b) for a, b in itertools.combinations(ends, 2) if nodes.episode[a] == nodes.episode[b]]
    roots = [ancestors(nodes.parent, node)[-1] for node in range(len(nodes.end))]
    assert {roots[a] == roots[b] for a, b in shared} == {True, False}, "in one tree, and in two"
    for a, b in shared:
        np.testing.assert_array_equal(nodes.rewards[a], nodes.rewards[b])


def test_a_group_of_chains():
    """Prompt 1 2, answered by 3 and by 4, observation 5, answer 6."""
    prompt, short = Branch(Kind.PROMPT, 0, [1, 2]), [Branch(Kind.ANSWER, 0, [3], [-1.0])]
    query, seen = Branch(Kind.QUERY, 0, [4], [-1.0]), Branch(Kind.OBSERVATION, 0, [5])
    last = Branch(Kind.ANSWER, 1, [6], [-1.0])
    episodes = [
        chain(short, episode=7, rewards=[1.0]),
        chain([query, seen, last], episode=3, rewards=[0.0]),
    ]
    forest = build([(0, group(prompt, episodes))], terms=1)
    check(forest)
    assert forest.token_id.tolist() == [1, 2, 3, 4, 5, 6]
    assert forest.prev.tolist() == [NONE, 0, 1, 1, 3, 4]
    assert forest.nodes.episode.tolist() == [NONE, 0, NONE, NONE, 1]
    assert forest.nodes.rewards[:, 0].tolist() == [0, 1, 0, 0, 0]
    alone = build([(0, chain([prompt, *parts], episode=i, rewards=[1.0])) for i, parts in enumerate([short])], terms=1)
    assert alone.nodes.end.tolist() == [2, 2]
    assert prompt.children == [], "parts are not changed"
    with pytest.raises(ValueError, match="at least its prompt"):
        chain([], episode=0, rewards=[0.0])


@given(trees())
def test_chains_hold_the_paths_of_the_trees_they_came_from(branches):
    def texts(forest):
        ends = np.flatnonzero(leaves(forest.nodes))
        return [
            forest.token_id[np.isin(forest.token_node, ancestors(forest.nodes.parent, end))].tolist() for end in ends
        ]

    shared, chains = build(branches, terms=TERMS), build(apart(branches), terms=TERMS)
    check(chains)
    assert texts(chains) == texts(shared)
    assert (chains.nodes.parent == NONE).sum() == leaves(shared.nodes).sum()


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
