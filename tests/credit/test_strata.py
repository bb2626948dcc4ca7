"""Strata, blocks, subproblems and steps by hand."""

from __future__ import annotations

from math import nan, sqrt

import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.credit.algebra import Episodes
from rlsearch.credit.strata import outcome_conditioned, step_peer
from rlsearch.errors import InputError
from tests.credit.hand import Chain, advantages, chains, credit, ends, outcomes, turns, weights

LOW, HIGH = sqrt(1.5), sqrt(2 / 3)  # of 1,0,1,1,0: mean .6, deviation sqrt(.24): .4 and -.6 over it


def test_stratified_by_hand():
    """Strata 0: 1,0. Stratum 2: 1,1. Stratum 3: 0, alone. Within: 1,-1, 0,0, 0. Over all: as above."""
    nodes = outcomes(*[(0, r) for r in (1, 0, 1, 1, 0)], stratum=(0, 0, 2, 2, 3))
    within, across = np.array([1, -1, 0, 0, 0]), np.array([HIGH, -LOW, HIGH, HIGH, -LOW])
    for blend in (0.0, 0.75, 1.0):
        assert ends(nodes, "stratified", blend=blend) == pytest.approx(blend * within + (1 - blend) * across)


def test_strata_lie_within_a_question():
    """B003: stratum 1 of one question is not that of another, in whatever order they stand."""
    nodes = outcomes((0, 1), (1, 0), (0, 1), (1, 0), stratum=(1, 1, 1, 1))
    assert ends(nodes, "stratified", blend=1.0) == [0, 0, 0, 0]


def test_a_stratum_without_a_signal_is_dropped_only_where_nothing_else_counts():
    nodes = outcomes((0, 1), (0, 1), (0, 0), (0, nan), stratum=(0, 0, 1, 1))
    assert not credit(nodes, "stratified", blend=1.0, drop_equal=True).kept.any()
    assert credit(nodes, "stratified", blend=0.5, drop_equal=True).kept.sum() == 3


def blocks(*rewards: tuple[float, float], question: int = 0) -> list[Chain]:
    """A solution (objective 0), a confidence (objective 1) and a closing turn that is nobody's."""
    return [Chain(question, row, [{"channel": 0.0}, {"channel": 1.0}, {"channel": -1.0}]) for row in rewards]


def test_outcome_conditioned_by_hand():
    """Right, right, wrong, wrong; calibration .9, .5, .8, .2, of weight 1/2.

    Solutions: mean 1/2. Confidence of the right ones: mean .7, so +-.2 x 1/2; of the wrong ones: mean .5, +-.3 x 1/2.
    Over all four the mean is .6, and the confidence .5 of a right answer would not differ from .2 in sign alone.
    """
    nodes = chains(*blocks((1, 0.9), (1, 0.5), (0, 0.8), (0, 0.2)))
    found = advantages(nodes, "outcome_conditioned", scale=False, weights=(1.0, 0.5))
    expected = [[0.5, 0.1, 0], [0.5, -0.1, 0], [-0.5, 0.15, 0], [-0.5, -0.15, 0]]
    assert np.array(found) == pytest.approx(np.array(expected))
    scaled = advantages(nodes, "outcome_conditioned", scale=True, weights=(1.0, 0.5))
    assert np.array(scaled) == pytest.approx(np.sign(expected) * [1, 0.5, 0])
    shares = weights(nodes, "outcome_conditioned", scale=False, weights=(1.0, 0.5))
    assert np.array(shares) == pytest.approx(np.tile([1 / 8, 1 / 8, 0], (4, 1)))


def test_an_outcome_reached_once_has_no_baseline():
    """The only wrong solution: its confidence has no peer. Another question's wrong solution is none."""
    nodes = chains(*blocks((1, 0.9), (1, 0.5), (0, 0.8)), *blocks((0, 0.1), question=1))
    found = advantages(nodes, "outcome_conditioned", scale=False, weights=(1.0, 1.0))
    assert np.array(found)[:, 1] == pytest.approx([0.2, -0.2, 0, 0])


def test_an_objective_without_weight_still_conditions():
    """Its block takes no part, and a NaN in it is an outcome of 0."""
    nodes = chains(*blocks((1, 0.9), (1, 0.5), (nan, 0.8), (0, 0.2)))
    found = np.array(advantages(nodes, "outcome_conditioned", scale=False, weights=(0.0, 1.0)))
    assert found == pytest.approx(np.array([[0, 0.2, 0], [0, -0.2, 0], [0, 0.3, 0], [0, -0.3, 0]]))
    nodes = chains(*blocks((1, 0.9), (1, 0.5), (nan, 0.8), (0, 0.2)))
    found = np.array(advantages(nodes, "outcome_conditioned", scale=False, weights=(1.0, 1.0)))
    assert found[2] == pytest.approx([0, 0, 0])  # here it cannot be scored
    assert found[:, 0] == pytest.approx([1 / 3, 1 / 3, 0, -2 / 3])


def test_a_penalty_in_the_reward_is_refused_where_terms_are_apart():
    """B080: not ignored."""
    nodes = chains(*blocks((1, 0.9), (0, 0.5)))
    episodes = Episodes(nodes, (1.0, 1.0), None, jnp.zeros(len(nodes.end)))
    with pytest.raises(InputError, match=r"outcome_conditioned.*use KL in the loss"):
        outcome_conditioned(episodes, scale=False)


def part(index: float, earned: float) -> dict[str, float]:
    return {"subproblem": index, "step_reward": earned}


THOUGHT = part(-1.0, 5.0)


def test_subproblem_by_hand():
    """Answers to 0: right, right, wrong: 1/sqrt(2) twice and -sqrt(2). To 1: right, wrong, and right after a wrong one.

    With progress the last counts as wrong: sqrt(2), -1/sqrt(2) twice. Without: 1/sqrt(2), -sqrt(2), 1/sqrt(2).
    """
    nodes = chains(
        Chain(0, 0.0, [part(0, 1), THOUGHT, part(1, 1)]),
        Chain(0, 0.0, [part(0, 1), THOUGHT, part(1, 0)]),
        Chain(0, 0.0, [part(0, 0), THOUGHT, part(1, 1)]),
    )
    big, small = sqrt(2), sqrt(0.5)
    chained = advantages(nodes, "subproblem", progress=True, scale=True)
    assert np.array(chained) == pytest.approx(np.array([[small, 0, big], [small, 0, -small], [-big, 0, -small]]))
    apart = advantages(nodes, "subproblem", progress=False, scale=True)
    assert np.array(apart) == pytest.approx(np.array([[small, 0, small], [small, 0, -big], [-big, 0, small]]))
    shares = weights(nodes, "subproblem", progress=True, scale=True)
    assert np.array(shares) == pytest.approx(np.tile([1 / 6, 0, 1 / 6], (3, 1)))


def test_two_turns_of_one_subproblem_share_what_they_earn():
    """1/4 + 3/4 against 0: 1/2 at both turns, and the two are one answer: -1/2 for the other.

    A subproblem that one episode reached has no peer. What an observation is said to have earned or answered is no
    turn's.
    """
    nodes = chains(
        Chain(0, 0.0, [part(2, 0.25), part(2, 0.75), part(3, 1)], observed=part(2, 9)),
        Chain(0, 0.0, [part(2, 0)]),
        Chain(1, 0.0, [part(2, 7)]),
    )
    found = advantages(nodes, "subproblem", progress=True, scale=False)
    assert found == [pytest.approx([0.5, 0.5, 0]), pytest.approx([-0.5]), [0]]
    kept = credit(nodes, "subproblem", progress=True, scale=False, drop_equal=True).kept
    assert kept.sum() == 2


def test_unscored_and_empty_answers_are_no_peers():
    """B087, B018: neither an episode that cannot be scored nor a turn without a token moves the mean of 1 and 0."""
    nodes = chains(
        Chain(0, 0.0, [part(0, 1)]), Chain(0, 0.0, [part(0, 0)]), Chain(0, nan, [part(0, 8)]),
        Chain(0, 0.0, [part(0, 8)], tokens=[0]), Chain(0, 0.0, [THOUGHT]),
    )  # fmt: skip
    assert ends(nodes, "subproblem", progress=False, scale=False) == pytest.approx([0.5, -0.5, 0, 0, 0])


def steps(question: int, outcome: float, *earned: float, tokens: list[int] | None = None) -> Chain:
    return Chain(question, outcome, [{"step_reward": x} for x in earned], tokens, observed={"step_reward": 50.0})


def test_step_peer_by_hand():
    """Rewards 1 and then 0 with outcome 1, discount 1/2: returns 3/2, 1. The peer stops after one step with 0.

    Step 0: 3/2, 0: mean 3/4. Step 1: 1 and the 0 of the peer that has stopped: mean 1/2. Deviations equal the means.
    B095: what the observation is said to have earned is nobody's.
    """
    nodes = chains(steps(0, 1.0, 1, 0), steps(0, 0.0, 0))
    assert advantages(nodes, "step_peer", discount=0.5, scale=False) == [pytest.approx([0.75, 0.5]), [-0.75]]
    assert advantages(nodes, "step_peer", discount=0.5, scale=True) == [pytest.approx([1, 1]), [-1]]


def test_observations_do_not_discount_and_do_not_stop_a_return():
    """B092, B094: outcome 1 after two steps is worth 1/2 at the first, across whatever stands between."""
    nodes = chains(steps(0, 1.0, 0, 0), steps(0, 0.0, 0, 0))
    found = np.array(advantages(nodes, "step_peer", discount=0.5, scale=False))
    assert found == pytest.approx(np.array([[0.25, 0.5], [-0.25, -0.5]]))


def test_steps_without_tokens_are_no_steps():
    """B018: the third takes its first step where the others do; its outcome stands at its last turn with tokens."""
    nodes = chains(steps(0, 3.0, 0), steps(0, 0.0, 0), steps(0, 0.0, 0, 0, 9, tokens=[0, 1, 0]), steps(1, 1.0, 5))
    found = advantages(nodes, "step_peer", discount=1.0, scale=False)
    assert found == [pytest.approx([2]), pytest.approx([-1]), pytest.approx([0, -1, 0]), [0]]


def test_equal_returns_and_unscored_peers():
    """B087: returns .1, .1 at the first step are exactly nothing; the second differs by who took it."""
    nodes = chains(steps(0, 0.1, 0), steps(0, 0.0, 0.1, 0), steps(0, nan, 4), steps(0, 0.1, 0))
    found = credit(nodes, "step_peer", discount=1.0, scale=True, drop_equal=True)
    assert not found.advantage.node.any()
    assert not found.kept.any()


def test_a_penalty_is_taken_at_the_step_that_pays_it():
    """Penalty 1/4 at the first turn of the first episode: its returns are 3/4, 1 against 0, 0."""
    nodes = chains(steps(0, 1.0, 0, 0), steps(0, 0.0, 0, 0))
    penalty = jnp.zeros(len(nodes.end)).at[1].set(0.25)
    found = step_peer(Episodes(nodes, (1.0,), None, penalty), discount=1.0, scale=False).advantage.node
    assert np.asarray(found)[:, 1] == pytest.approx([0.375, -0.375])
    assert np.asarray(found)[:, 3] == pytest.approx([0.5, -0.5])
    assert turns(nodes, np.arange(len(nodes.end))[:, None])[0] == [1, 3]
