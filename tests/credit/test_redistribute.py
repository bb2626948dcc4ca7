"""Redistribution worked by hand, and what it must leave as it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from math import nan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind, Nodes
from tests.credit import plain, twins  # noqa: F401  (twins registers them)
from tests.credit.hand import Chain, advantages, chains, credit, ends, outcomes
from tests.credit.plain import Table
from tests.credit.test_estimators import WEIGHTS, annotated, choose, estimate
from tests.tree.random_forests import TERMS, random_trees


def cites(*turns: tuple[float, float]) -> list[dict[str, float]]:
    """Support and action of each turn."""
    return [{"support": support, "action": action} for support, action in turns]


SELF = {"strength": 1.0, "floor": 0.0, "scale": True}


def test_what_successes_cite_is_credited():
    """Rewards 1 and 0 (+-1). Action 0 is cited 1 by the success and 1/2 by the failure: k = (1 - 1/2) / (3/2) = 1/3.

    Action 1 is cited by the failure alone: k = -1. So 1 + 1/3; 1 for the uncited turn; -(1 - 1/2 x 1/3) = -5/6 where a
    failure cites what successes cite; and -(1 + 1/4) where it cites what failures do.
    """
    nodes = chains(Chain(0, 1.0, cites((1, 0), (0, 1))), Chain(0, 0.0, cites((0.5, 0), (0.25, 1))))
    found = advantages(nodes, "self_credit", **SELF)
    assert found[0] == pytest.approx([4 / 3, 1])
    assert found[1] == pytest.approx([-5 / 6, -5 / 4])


def test_citations_that_tell_nothing_leave_the_outcome():
    """Equal citation, no match (below 0), negative support, and an action of another question."""
    nodes = chains(
        Chain(0, 1.0, cites((1, 0), (1, -1), (-1, 2))), Chain(0, 0.0, cites((1, 0), (0, 3))),
        Chain(1, 1.0, cites((0, 5))), Chain(1, 0.0, cites((0, 5))), Chain(2, nan, cites((1, 0))),
    )  # fmt: skip
    found = advantages(nodes, "self_credit", **SELF)
    assert found == [[1, 1, 1], [-1, -1], [1], [-1], [0]]


def test_means_over_episodes_and_the_floor():
    """Two successes, one of which cites action 0 with 1: f+ = 1/2; one failure cites it with 1: k = -1/3.

    Rewards 1, 1, 0: 1/sqrt(2) twice and -sqrt(2). Strength 6: the success has max(1 - 2, 1/4), the failure 1 + 2.
    """
    nodes = chains(Chain(0, 1.0, cites((1, 0))), Chain(0, 1.0, cites((0, 0))), Chain(0, 0.0, cites((1, 0))))
    found = advantages(nodes, "self_credit", **{**SELF, "strength": 6.0, "floor": 0.25})
    assert [row[0] for row in found] == pytest.approx([sqrt(0.5) / 4, sqrt(0.5), -3 * sqrt(2)])


def test_ranks_share_what_the_passing_rollouts_had():
    """Rewards 1, 1, 1, 0: 1/sqrt(3) three times and -sqrt(3). Ranks 0, 1, 1 weigh 1, 1/2, 1/2, times 3/2.

    So 3/2, 3/4, 3/4 of 1/sqrt(3): the sum stays sqrt(3). The rank of the failure is not read.
    """
    nodes = outcomes((0, 1.0), (0, 1.0), (0, 1.0), (0, 0.0), rank=[0, 1, 1, 7])
    found = ends(nodes, "graded", decay=0.5, scale=True)
    assert found == pytest.approx([1.5 / sqrt(3), 0.75 / sqrt(3), 0.75 / sqrt(3), -sqrt(3)])


def test_ranks_below_zero_and_winners():
    """Not ranked counts as 0. With decay 0 the best of the passing ones takes all, whatever its rank is called."""
    nodes = outcomes((0, 1.0), (0, 1.0), (0, 0.0), (0, 0.0), rank=[-4, 0, 0, 0])
    assert ends(nodes, "graded", decay=0.5, scale=True) == [1, 1, -1, -1]
    nodes = outcomes((0, 1.0), (0, 1.0), (0, 0.0), (0, 0.0), rank=[4, 3, 0, 0])
    assert ends(nodes, "graded", decay=0.0, scale=True) == [0, 2, -1, -1]
    far = outcomes((0, 1.0), (0, 1.0), (0, 0.0), (0, 0.0), rank=[5000, 5000, 0, 0])
    assert ends(far, "graded", decay=0.5, scale=True) == [1, 1, -1, -1]


def test_groups_without_a_passing_rollout():
    """All equal, one alone, one among the unscored: nothing."""
    nodes = outcomes((0, 0.6), (0, 0.6), (1, 1.0), (2, nan), (2, 1.0), rank=[0, 1, 0, 0, 1])
    found = credit(nodes, "graded", decay=0.5, scale=True, drop_equal=True)
    assert not found.advantage.node.any()
    assert not found.kept.any()


def supported(*values: float) -> list[dict[str, float]]:
    return [{"support": value} for value in values]


def test_mass_by_hand():
    """Rewards 1 and 0. Tokens 1, 2, 1 with support 3, 1, 1: mean (3 + 2 + 1) / 4 = 3/2. Floor 1/5: 1/5 + 4/5 s / mean.

    9/5, 11/15, 11/15: 9/5 + 3 x 11/15 = 4, as four tokens at 1. By nodes the mean is 5/3: 1/5 + 4/5 x 9/5 = 1.64, and
    .68 twice, whose sum is 3. The other has no support, and keeps -1.
    """
    nodes = chains(Chain(0, 1.0, supported(3, 1, 1), [1, 2, 1]), Chain(0, 0.0, supported(0, -1)))
    tokens = advantages(nodes, "mass_preserving", floor=0.2, over="tokens", scale=True)
    assert tokens[0] == pytest.approx([9 / 5, 11 / 15, 11 / 15])
    by_node = advantages(nodes, "mass_preserving", floor=0.2, over="nodes", scale=True)
    assert by_node[0] == pytest.approx([1.64, 0.68, 0.68])
    assert tokens[1] == by_node[1] == [-1, -1]


def test_an_episode_without_tokens_has_no_mass():
    nodes = chains(Chain(0, 1.0, supported(1), [0]), Chain(0, 0.0, supported(1, 1)))
    assert advantages(nodes, "mass_preserving", floor=0.0, over="tokens", scale=True) == [[0], [-1, -1]]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mass_preserving", {"floor": 0.0, "over": "turns", "scale": True}, "over='turns' is neither"),
        ("mass_preserving", {"floor": 1.5, "over": "tokens", "scale": True}, "floor 1.5 is not between 0 and 1"),
        ("graded", {"decay": -0.5, "scale": True}, "decay -0.5 is not between 0 and 1"),
    ],
)
def test_impossible_options_are_refused(name, options, words):
    nodes = chains(Chain(0, 1.0, [{"support": 1.0, "rank": 0.0}]))
    with pytest.raises(InputError, match=words):
        credit(nodes, name, **options)


def found(nodes: Nodes, estimator: str, **options) -> np.ndarray:
    """Advantages of a random table at the nodes and paths ``[N, K]``."""
    return estimate(nodes, choose(estimator, drop_equal=False, **options), WEIGHTS, "token").advantage.node


def episode_sums(nodes: Nodes, by: Callable[[Table, int], float], estimator: str, **options) -> dict[int, float]:
    """Sum over the turns of an episode of ``by(node)`` times the advantage there, on all its paths."""
    table, advantage, sums = Table(nodes, WEIGHTS), found(nodes, estimator, **options), defaultdict(float)
    for node, leaves in table.below.items():
        for column, leaf in enumerate(leaves):
            sums[table.episode[leaf]] += by(table, node) * float(advantage[node, column])
    return sums


def random_nodes(seed: int) -> Nodes:
    trees = random_trees(seed, trees=3, depth=3, branching=2, longest=5, contexts=0.3)
    return build(trees, terms=TERMS).nodes


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.sampled_from([("tokens", 0.2, True), ("nodes", 0.0, False)]))
def test_mass_is_preserved(seed, options):
    """Over the tokens of each episode, or over its turns, the total is GRPO's."""
    over, floor, scale = options

    def by(table: Table, node: int) -> int:
        return table.tokens[node] if over == "tokens" else table.tokens[node] > 0

    nodes = annotated(random_nodes(seed), ("support",), seed % 100)
    before = episode_sums(nodes, by, "grpo", scale=scale)
    after = episode_sums(nodes, by, "mass_preserving", floor=floor, over=over, scale=scale)
    assert after == pytest.approx(before, rel=1e-5, abs=1e-5)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(0.0, False), (0.5, True)]))
def test_the_positive_sum_is_preserved(seed, options):
    """Over the episodes of each question; what is not positive is as it was."""
    decay, scale = options
    nodes = annotated(random_nodes(seed), ("rank",), seed % 100)
    nodes = replace(nodes, tokens=np.ones_like(nodes.tokens))  # every leaf shows its episode's advantage
    before = found(nodes, "grpo", scale=scale)[:, 0]
    after = found(nodes, "graded", decay=decay, scale=scale)[:, 0]
    table = Table(nodes, WEIGHTS)
    for votes in plain.grouped(table.votes, lambda leaf: table.question[leaf]).values():
        good = [leaf for leaf in votes if before[leaf] > 1e-5]
        assert sum(after[good]) == pytest.approx(sum(before[good]), rel=1e-5, abs=1e-5)
        rest = [leaf for leaf in votes if before[leaf] < -1e-5]
        assert after[rest].tolist() == before[rest].tolist()


PLAN, RUN = 0, 1
DAG = {"orchestrator": PLAN, "attenuation": 0.5, "penalty": 0.25, "cap": 2, "scale": False}


def context(question: int, episode: int, reward: float, role: int, *turns: dict[str, float]) -> tuple[int, Branch]:
    """A context of an episode, of one token a turn; the notes of the last turn are those of the leaf."""
    below: list[Branch] = []
    for number in reversed(range(len(turns))):
        end = {} if below else {"episode": episode, "rewards": [reward]}
        below = [Branch(Kind.QUERY, number, [1], [-1.0], below, role=role, notes=turns[number], **end)]
    return question, Branch(Kind.PROMPT, 0, [0], children=below)


def test_plans_and_runs_by_hand():
    """DAGRPO with alpha 1/2, lambda 1/4. One episode succeeds, with a fault in its plan and a run that did not matter.

    Plans: 1 - 1/4 = 3/4 and 0 - 2/4 = -1/2, three faults counted as two: mean 1/8, so 5/8 and -5/8.
    Runs: 1, 1/2 and 0: mean 1/2, so 1/2, 0, -1/2.
    """
    wrong, used = {"fault": 1.0}, {"support": 1.0}
    trees = [
        context(0, 0, 1.0, PLAN, {}, wrong), context(0, 0, 1.0, RUN, wrong, used), context(0, 0, 1.0, RUN, {}),
        context(0, 1, 0.0, PLAN, wrong, wrong, wrong), context(0, 1, 0.0, RUN, used),
    ]  # fmt: skip
    nodes = build(trees, terms=1).nodes
    assert advantages(nodes, "topology", **DAG) == [[5 / 8] * 2, [1 / 2] * 2, [0], [-5 / 8] * 3, [-1 / 2]]
    scaled = advantages(nodes, "topology", **{**DAG, "scale": True})
    assert scaled[0] == pytest.approx([1, 1])
    assert [row[0] for row in scaled[1:3]] == pytest.approx([sqrt(1.5), 0])


def test_without_an_answer_no_run_is_attenuated():
    """Rewards 1 and 0, no run depended on: 1/2 and -1/2. A question of one run has nothing."""
    trees = [context(0, i, 1.0 - i, RUN, {"support": -1.0}) for i in range(2)] + [context(1, 2, 1.0, RUN, {})]
    nodes = build(trees, terms=1, notes=["fault"]).nodes
    assert advantages(nodes, "topology", **DAG) == [[1 / 2], [-1 / 2], [0]]


def test_equal_plans_have_exactly_nothing():
    """.6 less two penalties, all alike, and an unscored one beside them; .3 less one of .1 and .2 without differ by a
    rounding alone.
    """
    wrong = {"fault": 1.0, "support": 0.0}
    trees = [context(0, i, reward, PLAN, wrong, wrong) for i, reward in enumerate((0.6, 0.6, 0.6, nan))]
    trees += [context(1, 4, 0.3, PLAN, wrong), context(1, 5, 0.2, PLAN, {})]
    found = credit(build(trees, terms=1).nodes, "topology", drop_equal=True, **{**DAG, "penalty": 0.1, "scale": True})
    assert not found.advantage.node.any()
    assert not found.kept.any()


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_paths_of_both_roles_equal_the_recursion(seed):
    """Random roles, which other forests do not have."""
    nodes = random_nodes(seed)
    roles = np.random.default_rng(seed).integers(0, 3, size=len(nodes.role)).astype(np.int32)
    nodes = annotated(replace(nodes, role=roles), ("support", "fault"), seed % 100)
    options = plain.OPTIONS["topology"][0]
    advantage, table = found(nodes, "topology", **options), Table(nodes, WEIGHTS)
    answer = plain.TWINS["topology"](table, **options)
    for node, leaves in table.below.items():
        expected = [answer.advantage.get((leaf, node), 0.0) if table.tokens[node] else 0.0 for leaf in leaves]
        assert advantage[node, : len(leaves)].tolist() == pytest.approx(expected, rel=2e-5, abs=2e-5)
