"""Where rollouts branch: how many leaves, from which points, and what they share."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from rlsearch.envs.search_r1 import SearchEnv, SearchEnvConfig
from rlsearch.errors import InputError
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.expanders import registry as expanders
from rlsearch.sampling.expanders.chains import Group
from rlsearch.sampling.expanders.random_expansion import RandomExpansion
from rlsearch.sampling.grow import Grower, grow
from rlsearch.sampling.rollouts import POLICY
from rlsearch.tree.build import build
from rlsearch.tree.check import check
from rlsearch.tree.forest import Kind
from tests import small


@pytest.fixture(scope="module")
def run():
    return small.warmed()


def trees(run, expander, *, count=2, env=None, seed=0):
    scene = dataclasses.replace(run.parts.scene, env=env or run.parts.scene.env)
    grower = Grower(run.parts.engine, scene, {POLICY: run.params}, jax.random.key(seed), Draw(), 0, score=unscored)
    return grow(grower, expander, run.parts.task.train[:count], np.random.default_rng(seed)).trees


def unscored(state):
    raise AssertionError("nobody asks")


def sound(grown):
    forest = build([(tree.question, tree.root) for tree in grown], terms=0)
    check(forest)
    return forest


def inner(branch, depth=0):
    """Nodes that branch, with their depth."""
    if len(branch.children) > 1:
        yield depth, branch
    for child in branch.children:
        yield from inner(child, depth + 1)


@pytest.mark.parametrize("size", [1, 3])
def test_a_group_is_one_tree_that_branches_at_the_prompt_alone(run, size):
    grown = trees(run, Group(size), count=4)
    assert [tree.question for tree in grown] == [0, 1, 2, 3]
    assert all(len(tree.episodes) == len(tree.root.children) == size for tree in grown)
    assert all(depth == 0 for tree in grown for depth, _ in inner(tree.root))
    sound(grown)


@pytest.mark.parametrize(("m", "n", "rounds"), [(1, 1, 1), (2, 1, 3), (1, 3, 2), (2, 3, 0)])
def test_expansion_makes_as_many_leaves_as_it_says(run, m, n, rounds):
    """M(1 + N L) leaves a question, in M trees."""
    expander = RandomExpansion(trees=m, branches=n, rounds=rounds)
    assert expander.leaves == m * (1 + n * rounds)
    grown = trees(run, expander)
    assert [tree.question for tree in grown] == [q for q in range(2) for _ in range(m)]
    assert all(len(tree.episodes) == 1 + n * rounds for tree in grown)
    assert (sound(grown).nodes.episode >= 0).sum() == 2 * expander.leaves


def test_expansion_branches_where_turns_begin_and_shares_what_is_above(run):
    expander = RandomExpansion(trees=2, branches=2, rounds=2)
    found = [
        (d, node)
        for seed in range(3)
        for tree in trees(run, expander, count=1, seed=seed)
        for d, node in inner(tree.root)
    ]
    assert {node.kind for _, node in found} == {Kind.PROMPT, Kind.OBSERVATION}
    assert all(child.logps is not None for _, node in found for child in node.children)


def test_the_generator_chooses_the_points(run):
    def shape(branch):
        return [shape(child) for child in branch.children]

    expander = RandomExpansion(trees=1, branches=3, rounds=2)
    one, again = (trees(run, expander, seed=5), trees(run, expander, seed=5))
    assert [shape(tree.root) for tree in one] == [shape(tree.root) for tree in again]
    assert [e.state for tree in one for e in tree.episodes] == [e.state for tree in again for e in tree.episodes]


def test_where_nothing_but_the_prompt_can_branch_it_does(run):
    """One turn only (B043): no chain has an observation, and expansions start from the prompt."""
    env = SearchEnv(SearchEnvConfig(max_turns=0, hits=1, style="compact"))
    grown = trees(run, RandomExpansion(trees=2, branches=2, rounds=1), env=env)
    assert all(len(tree.points) == 1 and len(tree.root.children) == len(tree.episodes) == 3 for tree in grown)
    sound(grown)


def test_the_config_names_an_expander():
    made = expanders.make(ConfigDict({"kind": "random_expansion", "trees": 2, "branches": 1, "rounds": 3}))
    assert made == RandomExpansion(trees=2, branches=1, rounds=3)
    with pytest.raises(InputError, match=r"config.expander.kind: 'gruop' is unknown; did you mean 'group'"):
        expanders.make(ConfigDict({"kind": "gruop", "size": 2}))
    with pytest.raises(InputError, match=r"config\.expander: missing size"):
        expanders.make(ConfigDict({"kind": "group"}))
