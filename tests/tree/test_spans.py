"""Spans of a turn: a split forest is the same forest, with more nodes for credit to tell apart."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.config import Call
from rlsearch.credit import registry
from rlsearch.credit.algebra import Credit
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.tree.build import Branch, build, chain
from rlsearch.tree.check import check
from rlsearch.tree.forest import NONE, Forest, Kind, Nodes
from rlsearch.tree.pack import pad_nodes
from rlsearch.tree.spans import split, split_tree
from tests.credit.by_node import estimate
from tests.tree.random_forests import TERMS, random_trees

TOKENS = ("token_id", "position", "prev", "token_end", "sampled", "behavior_logp")


def turn(tokens: int = 5, **more) -> Branch:
    return Branch(Kind.QUERY, 3, list(range(tokens)), [-1.0 - i for i in range(tokens)], **more)


def below(branch: Branch) -> list[Branch]:
    """A branch and the first children below it."""
    return [branch, *(below(branch.children[0]) if branch.children else [])]


def test_spans_by_hand():
    """Five tokens cut before the second and the fourth: 1, 2 and 2, with what each of them notes."""
    child = Branch(Kind.OBSERVATION, 4, [9], episode=7, rewards=[1.0])
    whole = turn(children=[child], version=2, role=1, notes={"step_reward": 0.5, "channel": 3.0})
    found = below(split(whole, [1, 3], [{"channel": 0.0}, {}, {"channel": 2.0}]))
    assert [span.tokens for span in found[:3]] == [[0], [1, 2], [3, 4]]
    assert [span.logps for span in found[:3]] == [[-1.0], [-2.0, -3.0], [-4.0, -5.0]]
    assert [span.notes for span in found[:3]] == [{"channel": 0.0}, {}, {"step_reward": 0.5, "channel": 2.0}]
    assert {(span.kind, span.turn, span.version, span.role) for span in found[:3]} == {(Kind.QUERY, 3, 2, 1)}
    assert found[3] is child
    assert whole == turn(children=[child], version=2, role=1, notes={"step_reward": 0.5, "channel": 3.0})


def test_the_last_span_ends_the_episode():
    found = below(split(turn(episode=4, rewards=[0.5]), [2], [{}, {}]))
    assert [(span.episode, list(span.rewards)) for span in found] == [(NONE, []), (4, [0.5])]


def test_what_was_not_sampled_may_be_split():
    found = below(split(Branch(Kind.OBSERVATION, 1, [4, 5], episode=0, rewards=[0.0]), [1], [{}, {}]))
    assert [(span.tokens, span.logps) for span in found] == [([4], None), ([5], None)]


def test_no_cut_changes_notes_alone():
    found = split(turn(episode=0, rewards=[1.0]), [], [{"channel": 1.0}])
    assert found == turn(episode=0, rewards=[1.0], notes={"channel": 1.0})
    empty = Branch(Kind.ANSWER, 0, [], [], episode=0, rewards=[1.0])
    assert split(empty, [], [{}]) == empty


@pytest.mark.parametrize("cuts", [[0], [5], [6], [-1], [2, 2], [3, 1]])
def test_cuts_that_leave_a_span_empty_are_refused(cuts):
    with pytest.raises(ValueError, match=r"do not divide 5 tokens"):
        split(turn(), cuts, [{}] * (len(cuts) + 1))


def test_a_note_for_each_span():
    with pytest.raises(ValueError, match="1 notes for 2 spans"):
        split(turn(), [2], [{}])


ESTIMATORS = (
    {"estimator": "grpo", "scale": True},
    {"estimator": "rloo"},
    {"estimator": "tree_grpo", "scale": True},
    {"estimator": "through_node", "scale": True},
    {"estimator": "stratified", "blend": 0.5},
    {"estimator": "tree_rl", "global_weight": 1.0, "local_weight": 0.0, "reweight": True, "shared_root": True},
)


@functools.partial(jax.jit, static_argnames=("config", "reduction"))
def jitted(nodes: Nodes, config: registry.CreditConfig, reduction: str) -> Credit:
    return estimate(nodes, config, weights=(1.0, 0.5), reduction=Call(reduction, REDUCTIONS[reduction], ()))


def by_token(forest: Forest, options: dict, reduction: str) -> tuple[np.ndarray, np.ndarray]:
    """Advantage and weight of each token on each path through it."""
    config = registry.read(ConfigDict({"drop_equal": True, **options}))
    nodes = pad_nodes(forest.nodes, 128, leaves=32, depth=16, fan=16)
    credit = jitted(nodes, config, reduction)
    return tuple(np.asarray(x)[forest.token_node] for x in (credit.advantage.node, credit.weight))


def noted(branch: Branch, rng: np.random.Generator) -> Branch:
    """The tree with a stratum at each leaf."""
    notes = {} if branch.children else {"stratum": float(rng.integers(2))}
    return replace(branch, notes=notes, children=[noted(child, rng) for child in branch.children])


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(1, 2), st.sampled_from([0.0, 0.4]))
def test_a_split_forest_is_the_same_forest(seed, trees, contexts):
    """Tokens, mask and what was sampled; and credit, where an episode is judged, or the episodes below a node."""
    rng = np.random.default_rng(seed)
    whole = random_trees(seed, trees=trees, depth=3, branching=2, longest=5, contexts=contexts)
    whole = [(question, noted(root, rng)) for question, root in whole]

    def choose(branch):
        inside = range(1, len(branch.tokens))
        cuts = sorted(rng.choice(inside, size=rng.integers(min(len(inside), 2) + 1), replace=False)) if inside else []
        return cuts, [{"channel": float(i)} for i in range(len(cuts) + 1)]

    spans = [(question, split_tree(root, choose)) for question, root in whole]
    before, after = build(whole, terms=TERMS), build(spans, terms=TERMS)
    check(after)
    for name in TOKENS:
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    for options in ESTIMATORS:
        for reduction in ("token", "sequence"):
            for found, expected in zip(*(by_token(f, options, reduction) for f in (after, before)), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(options))


def test_a_step_estimator_sees_spans_as_steps():
    """Two episodes with rewards 1 and 0: the first span takes the whole step of 1/2, the second adds nothing."""
    prompt = Branch(Kind.PROMPT, 0, [0])
    answers = [Branch(Kind.ANSWER, 0, [1, 2], [-1.0, -1.0]) for _ in range(2)]
    trees = [chain([prompt, answer], episode=i, rewards=[1.0 - i]) for i, answer in enumerate(answers)]
    cut = split_tree(trees[0], lambda branch: ([1], [{}, {}]) if branch.logps else None)
    nodes = build([(0, cut), (0, trees[1])], terms=1).nodes
    config = registry.read(
        ConfigDict({"estimator": "tree_step", "drop_equal": True, "scale": False, "shared_root": True})
    )
    credit = estimate(nodes, config, weights=(1.0,), reduction=Call("token", REDUCTIONS["token"], ()))
    assert np.asarray(credit.advantage.node)[[1, 2, 4], 0].tolist() == [0.5, 0.0, -0.5]
