"""Trees worked by hand. The tree of most tests is root -> (a: one leaf, right; b: two leaves c right and d wrong):

rewards 1, 1, 0 with mean 2/3 and deviation sqrt(2)/3; values 2/3 at the root, 1 at a, 1/2 at b, 1 at c and 0 at d.
"""

from __future__ import annotations

import statistics
from math import e, nan, sqrt

import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from rlsearch.credit import registry
from rlsearch.credit.slots import Slots
from rlsearch.losses import reduce
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind, Nodes
from tests.credit import hand
from tests.credit.by_node import estimate


def leaf(reward: float, episode: int, tokens: int = 1) -> Branch:
    return Branch(Kind.ANSWER, 1, [1] * tokens, [-1.0] * tokens, episode=episode, rewards=[reward])


def query(*children: Branch, tokens: int = 1) -> Branch:
    return Branch(Kind.QUERY, 0, [1] * tokens, [-1.0] * tokens, list(children))


def observed(*children: Branch) -> Branch:
    return Branch(Kind.OBSERVATION, 1, [2, 2], children=list(children))


def table(*trees: tuple[Branch, ...]) -> Nodes:
    """Trees of one question, each from the children of its root."""
    return build([(0, Branch(Kind.PROMPT, 0, [0], children=list(tree))) for tree in trees], terms=1).nodes


def at(nodes: Nodes, estimator: str, **options) -> list[list[float]]:
    """The advantages of the paths through each node."""
    column, count = hand.credit(nodes, estimator, **options).advantage.node, np.asarray(nodes.paths.count)
    return [column[node, : count[node]].tolist() for node in range(len(nodes.end))]


def shared(nodes: Nodes, estimator: str, **options) -> list[float]:
    """The same where all paths through a node must agree."""
    found = at(nodes, estimator, **options)
    assert all(max(values) == min(values) for values in found)
    return [values[0] for values in found]


TREE = table((leaf(1, 0), query(leaf(1, 1), leaf(0, 2))))  # root, a, b, c, d
ROOT = {"shared_root": True}


def close(values) -> pytest.approx:
    return pytest.approx(values, abs=1e-6)


def test_tree_rl_global_local_and_sum():
    """B046: values 2/3, 1, 1/2, and no more in the sum than the two terms.

    Less the root's 2/3: 1/3, -1/6, and below b 1/3, -2/3. Less the parent's: 1/3, -1/6, 1/2, -1/2.
    Sum: 2/3, -1/3, 5/6, -7/6, of which b's is divided by the root of its two leaves.
    """
    only = {"reweight": False, **ROOT}
    assert shared(TREE, "tree_rl", global_weight=1, local_weight=0, **only)[1:] == close([1 / 3, -1 / 6, 1 / 3, -2 / 3])
    assert shared(TREE, "tree_rl", global_weight=0, local_weight=1, **only)[1:] == close([1 / 3, -1 / 6, 1 / 2, -1 / 2])
    both = shared(TREE, "tree_rl", global_weight=1, local_weight=1, reweight=True, **ROOT)
    assert both[1:] == close([2 / 3, -1 / 3 / sqrt(2), 5 / 6, -7 / 6])


def test_trees_of_one_prompt_are_one_tree_or_each_alone():
    """Two chains, right and wrong. Under one root of value 1/2 they differ by 1/2 from it; alone from nothing."""
    nodes = table((leaf(1, 0),), (leaf(0, 1),))
    options = {"global_weight": 1.0, "local_weight": 0.0, "reweight": False}
    assert at(nodes, "tree_rl", shared_root=True, **options) == [[0], [0.5], [0], [-0.5]]
    assert at(nodes, "tree_rl", shared_root=False, **options) == [[0]] * 4
    kept = [hand.credit(nodes, "tree_rl", drop_equal=True, shared_root=root, **options).kept for root in (True, False)]
    assert [int(column.sum()) for column in kept] == [2, 0]


def released(trees: list[list[float]]) -> list[float]:
    """The release: normalised within each tree, and what comes of that again over all trees."""

    def normal(x):
        return [(value - statistics.fmean(x)) / (statistics.pstdev(x) or 1.0) for value in x]

    return normal([value for tree in trees for value in normal(tree)])


def test_tree_inter_is_not_cancelled_by_tree_intra():
    """Trees (1, 1) and (0, 0) differ in nothing but the tree: +-1 between them.

    The release finds 0 within each tree and 0 in what is left. For (1, 0) and (0, 0) its result is sqrt(2) times the
    part within, so that the worse tree gets 0, as if it were neither better nor worse than the other.
    """
    clear = table((leaf(1, 0), leaf(1, 1)), (leaf(0, 2), leaf(0, 3)))
    assert released([[1, 1], [0, 0]]) == [0, 0, 0, 0]
    assert at(clear, "tree_intra", scale=True) == [[0, 0], [0], [0]] * 2
    assert at(clear, "tree_inter", scale=True) == [[0, 0], [1], [1], [0, 0], [-1], [-1]]
    mixed = table((leaf(1, 0), leaf(0, 1)), (leaf(0, 2), leaf(0, 3)))
    inside, across, both = (at(mixed, f"tree_{name}", scale=True) for name in ("intra", "inter", "grpo"))
    turns = [1, 2, 4, 5]
    assert [inside[node][0] for node in turns] == close([1, -1, 0, 0])
    assert released([[1, 0], [0, 0]]) == close([sqrt(2) * inside[node][0] for node in turns])
    assert [across[node][0] for node in turns] == close([sqrt(3), *[-1 / sqrt(3)] * 3])
    assert [both[node][0] for node in turns] == close([inside[node][0] + across[node][0] for node in turns])


def test_tree_step_adds_up_to_the_group_relative_advantage():
    """In deviations of sqrt(2)/3: 1/3, -1/6, 1/2, -1/2 become 1/sqrt(2), -sqrt(2)/4, and +-3/(2 sqrt(2)).

    Along root, b, c: -sqrt(2)/4 + 3/(2 sqrt(2)) = 1/sqrt(2), which is (1 - 2/3) / (sqrt(2)/3).
    """
    found = shared(TREE, "tree_step", scale=True, **ROOT)
    assert found[1:] == close([1 / sqrt(2), -sqrt(2) / 4, 1.5 / sqrt(2), -1.5 / sqrt(2)])
    assert found[2] + found[3] == close(1 / sqrt(2))


def test_tempo_adds_the_value_difference_where_paths_branch():
    """GRPO 1/sqrt(2), 1/sqrt(2), -sqrt(2) by episode, plus the differences of ``tree_step`` by node.

    At b the episodes of c and d have the same difference, -sqrt(2)/4, and advantages of their own. Between a and an
    observation and an answer that follow it alone, values do not change, so that only GRPO is left there.
    """
    long = table((query(observed(leaf(1, 0))), query(leaf(1, 1), leaf(0, 2))))  # root, a, its observation and answer
    found = at(long, "tempo", scale=True, whole_turn=True)
    assert found[1] == close([sqrt(2)])
    assert found[3] == at(long, "grpo", scale=True)[3] == close([1 / sqrt(2)])
    assert found[4] == close([1 / sqrt(2) - sqrt(2) / 4, -sqrt(2) - sqrt(2) / 4])
    assert [found[5], found[6]] == [close([2.5 / sqrt(2)]), close([-sqrt(2) - 1.5 / sqrt(2)])]


def test_tempo_of_tokens_pays_the_first_token_of_a_branch():
    """Turns of two tokens at a, b, c and d, as they lie in a row of nine slots, the last one empty."""
    nodes = table((leaf(1, 0, 2), query(leaf(1, 1, 2), leaf(0, 2, 2), tokens=2)))
    node = jnp.asarray([[[1, 1, 2, 2, 3, 3, 4, 4, 0]]])
    slots = Slots(node, jnp.arange(9)[None, None] < 8, None, None)
    config = registry.read(ConfigDict({"estimator": "tempo", "scale": True, "whole_turn": False, "drop_equal": True}))
    track = estimate(nodes, config, weights=(1.0,), reduction=reduce.token, slots=slots).advantage
    first, step = track.offset[0, 0, 0::2], 1.5 / sqrt(2)
    assert first.tolist() == close([1 / sqrt(2), -sqrt(2) / 4, step, -step, 0])
    assert not track.offset[0, 0, 1::2].any()
    assert (track.decay == 1).all()
    assert track.node[1:, 0].tolist() == close([1 / sqrt(2), 1 / sqrt(2), 1 / sqrt(2), -sqrt(2)])
    with pytest.raises(ValueError, match="needs the batch's tokens"):
        hand.credit(nodes, "tempo", scale=True, whole_turn=False)


def test_child_softmax_by_temperature():
    """Leaves less 2/3: 1/3, 1/3, -2/3. At temperature 1 b's children weigh e : 1, so V(b) = 1/3 - 1/(1 + e).

    Near 0 it is the better child, 1/3; far up the mean, -1/6.
    """
    options = {"difference": False, "scale": False, **ROOT}
    found = [shared(TREE, "child_softmax", temperature=t, **options) for t in (1.0, 0.01, 1e4)]
    assert found[0][1:] == close([1 / 3, 1 / 3 - 1 / (1 + e), 1 / 3, -2 / 3])
    assert [values[2] for values in found[1:]] == [close(1 / 3), pytest.approx(-1 / 6, abs=1e-4)]
    near = shared(TREE, "child_softmax", temperature=0.01, difference=True, scale=False, **ROOT)
    assert near[1:] == close([0, 0, 0, -1])


def test_child_softmax_weighs_children_and_not_the_leaves_below_them():
    """x -> (y -> 1, 0; z -> 0), less the mean 1/3: y is worth 1/6, z -1/3, and their mean is -1/12.

    Every leaf on its own would make it 0.
    """
    nodes = table((query(query(leaf(1, 0), leaf(0, 1)), query(leaf(0, 2))),))
    found = shared(nodes, "child_softmax", temperature=1e4, difference=False, scale=False, **ROOT)
    assert found[1:3] == [pytest.approx(-1 / 12, abs=1e-4), pytest.approx(1 / 6, abs=1e-4)]


def test_siblings_count_once_each():
    """a and b: 1 and 1/2, mean 3/4, deviation 1/4 whatever b's leaves are; c and d: 1 and 0."""
    assert shared(TREE, "siblings", scale=True, **ROOT)[1:] == close([1, -1, 1, -1])
    assert shared(TREE, "siblings", scale=False, **ROOT)[1:] == close([0.25, -0.25, 0.5, -0.5])


def test_siblings_over_trees():
    """Three chains of one question, one of which could not be scored: two siblings, or none."""
    nodes = table((leaf(1, 0),), (leaf(0, 1),), (leaf(nan, 2),))
    assert at(nodes, "siblings", scale=True, shared_root=True)[1::2] == [[1], [-1], [0]]
    assert at(nodes, "siblings", scale=True, shared_root=False)[1::2] == [[0], [0], [0]]


def test_siblings_of_values_that_are_equal_but_for_rounding():
    """Three children whose rewards (1, 0, 0), (1/2, 1/2, 0) and (1/3, 1/3, 1/3) all have the mean 1/3.

    Their float32 means differ in the last bit, which a division by their deviation would make +-1 of.
    """
    rewards = [(1, 0, 0), (0.5, 0.5, 0), (1 / 3, 1 / 3, 1 / 3), (0.3, 0.6, 0.1)]
    nodes = table(tuple(query(*[leaf(r, 3 * i + j) for j, r in enumerate(three)]) for i, three in enumerate(rewards)))
    found = at(nodes, "siblings", scale=True, **ROOT)
    assert [found[node] for node in (1, 5, 9, 13)] == [[0, 0, 0]] * 4
    assert found[2] == close([sqrt(2)])  # 1 among 1, 0, 0
    stepped = at(nodes, "tree_step", scale=False, **ROOT)
    assert [stepped[node] for node in (1, 5, 9, 13)] == [[0, 0, 0]] * 4


def test_through_node_is_the_mean_of_the_branches():
    """1/sqrt(2) at a and c, -sqrt(2) at d; b has the mean of its two, (1/sqrt(2) - sqrt(2)) / 2 = -sqrt(2)/4."""
    found = shared(TREE, "through_node", scale=True)
    assert found[1:] == close([1 / sqrt(2), -sqrt(2) / 4, 1 / sqrt(2), -sqrt(2)])


def test_path_level_asks_for_more_than_parent_and_siblings():
    """mix 1/2, gain 1. b(a) = (2/3 + 1/2)/2 = 7/12, b(b) = (2/3 + 1)/2 = 5/6, b(c) = 1/4, b(d) = 3/4.

    Shaped: 1 + 5/12 = 17/12, 1/2 - 1/3 = 1/6, 1 + 3/4 = 7/4, -3/4, with mean 31/48 over the four turns.
    """
    shaped = [17 / 12, 1 / 6, 7 / 4, -3 / 4]
    found = shared(TREE, "path_level", mix=0.5, gain=1.0, scale=False, **ROOT)
    assert found[1:] == close([value - 31 / 48 for value in shaped])
    scaled = shared(TREE, "path_level", mix=0.5, gain=1.0, scale=True, **ROOT)
    assert scaled[1:] == close([(value - 31 / 48) / statistics.pstdev(shaped) for value in shaped])


def test_an_only_child_gains_nothing():
    """Chain to 1 and chain to 0, no siblings within their trees: value 1 and 0 at each of its turns, as the parents."""
    nodes = table((query(leaf(1, 0)),), (query(leaf(0, 1)),))
    found = at(nodes, "path_level", mix=0.5, gain=1.0, scale=True, shared_root=False)
    assert found == [[0], [1], [1], [0], [-1], [-1]]


def test_an_episode_of_two_contexts_under_one_root_counts_once():
    """B090: episode 0 (reward 1, two contexts) and episode 1 (reward 0): the root is worth 1/2, and not 2/3."""
    nodes = table((leaf(1, 0), leaf(1, 0), leaf(0, 1)))
    found = shared(nodes, "tree_rl", global_weight=1, local_weight=0, reweight=False, shared_root=False)
    assert found[1:] == [0.5, 0.5, -0.5]


def test_two_later_contexts_that_share_a_turn_count_once_there():
    """Episode 0 in contexts x, y, z, of which y and z and episode 1 share a turn: it is worth (1 + 0)/2."""
    nodes = table((leaf(1, 0), query(leaf(1, 0), leaf(1, 0), leaf(0, 1))))
    found = shared(nodes, "tree_rl", global_weight=1, local_weight=0, reweight=True, shared_root=False)
    assert found[1:] == close([0.5, 0, 0.5, 0.5, -0.5])
    weighed = shared(nodes, "tree_rl", global_weight=1, local_weight=1, reweight=True, shared_root=False)
    assert weighed[1:] == close([1, 0, 1, 1, -1])


EVERY = {
    "tree_intra": {"scale": True},
    "tree_inter": {"scale": True},
    "tree_rl": {"global_weight": 1.0, "local_weight": 1.0, "reweight": True, **ROOT},
    "tree_step": {"scale": True, **ROOT},
    "tempo": {"scale": True, "whole_turn": True},
    "child_softmax": {"temperature": 1.0, "difference": False, "scale": True, **ROOT},
    "siblings": {"scale": True, **ROOT},
    "through_node": {"scale": True},
    "path_level": {"mix": 0.5, "gain": 1.0, "scale": True, **ROOT},
}


@pytest.mark.parametrize("name", EVERY)
def test_no_signal_without_a_difference(name):
    """B087: a group of one, equal rewards, and a group of which one episode could be scored."""
    for tree in [(leaf(1, 0),), (leaf(0.1, 0), query(leaf(0.1, 1), leaf(0.1, 2))), (leaf(1, 0), query(leaf(nan, 1)))]:
        found = hand.credit(table(tree), name, drop_equal=True, **EVERY[name])
        assert not found.advantage.node.any()
        assert not found.kept.any()


@pytest.mark.parametrize("name", EVERY)
def test_what_could_not_be_scored_changes_nothing(name):
    """The tree of above with an unscored leaf below a new turn, and one more below b."""
    extra = table((leaf(1, 0), query(leaf(1, 1), leaf(0, 2), leaf(nan, 3)), query(leaf(nan, 4), tokens=2)))
    found, expected = at(extra, name, **EVERY[name]), at(TREE, name, **EVERY[name])
    assert [found[node][: len(expected[node])] for node in range(5)] == [close(values) for values in expected]
    assert found[5:] == [[0], [0], [0]]


@pytest.mark.parametrize("name", EVERY)
def test_a_turn_without_sampled_tokens_has_no_credit_and_disturbs_none(name):
    """a is followed by an empty turn; path level counts the turns that have tokens."""
    empty = table((query(leaf(1, 0, 0)), query(leaf(1, 1), leaf(0, 2))))
    found, expected = at(empty, name, **EVERY[name]), at(TREE, name, **EVERY[name])
    assert found[2] == [0]
    assert [found[1], found[3], found[4], found[5]] == [close(values) for values in expected[1:]]
