"""Turns worked by hand: step rewards, returns along a path, attempts within a path."""

from __future__ import annotations

from math import nan, sqrt

import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind, Nodes
from tests.credit import hand
from tests.credit.hand import Chain, advantages, chains


def earned(*rewards: float) -> list[dict[str, float]]:
    return [{"step_reward": reward} for reward in rewards]


def chain(question: int, outcome: float, *rewards: float) -> Chain:
    """Observations stand between turns, and their note must not be read."""
    return Chain(question, outcome, earned(*rewards), observed={"step_reward": 9.0})


def close(rows) -> list:
    return [pytest.approx(row, abs=1e-6) for row in rows]


def test_an_observation_consumes_no_discount():
    """B094: rewards 0, -, 1 at two turns with an observation between them, discount .5: returns .5 and 1.

    Beside it an episode of two turns that earned nothing: means 1/4 and 1/2 at the two turns.
    """
    nodes = chains(chain(0, 1.0, 0, 0), chain(0, 0.0, 0, 0))
    assert advantages(nodes, "turn_return", discount=0.5, scale=False) == close([[0.25, 0.5], [-0.25, -0.5]])


def test_step_return_pools_all_turns_of_the_question():
    """G = (.5 + .5 x 1, 1) and (0): mean 2/3, deviation sqrt(2)/3. Another question is no part of it."""
    nodes = chains(chain(0, 1.0, 0.5, 0), chain(0, 0.0, 0), chain(1, 5.0, 7.0))
    found = advantages(nodes, "step_return", discount=0.5, scale=True)
    assert found == close([[1 / sqrt(2), 1 / sqrt(2)], [-sqrt(2)], [0]])


def test_turn_return_compares_equal_turns():
    """First turns 1 and 0: +-1. The second turn has no other to compare with."""
    nodes = chains(chain(0, 1.0, 0.5, 0), chain(0, 0.0, 0))
    assert advantages(nodes, "turn_return", discount=0.5, scale=True) == close([[1, 0], [-1]])


def test_every_turn_has_its_own_trajectorys_advantage():
    """B053: turns of 2, 4 and 3 tokens; the credit of a turn is a number of the turn, whatever its length."""
    first = Chain(0, 1.0, earned(0, 0, 0), tokens=[2, 4, 3])
    nodes = chains(first, chain(0, 0.0, 0, 0, 0))
    assert advantages(nodes, "turn_return", discount=1.0, scale=True) == close([[1, 1, 1], [-1, -1, -1]])
    assert hand.weights(nodes, "turn_return", discount=1.0, scale=True) == close([[1 / 12] * 3, [1 / 12] * 3])


def test_a_path_that_ends_in_an_observation_pays_its_last_turn_in_full():
    end = Branch(Kind.OBSERVATION, 1, [2], episode=0, rewards=[1.0])
    cut = Branch(Kind.PROMPT, 0, [0], children=[Branch(Kind.QUERY, 0, [1], [-1.0], [end])])
    nodes = build([(0, cut), (0, chain(0, 0.0, 0).branch(1))], terms=1).nodes
    assert advantages(nodes, "step_return", discount=0.5, scale=False) == close([[0.5], [-0.5]])


def test_returns_of_a_shared_turn_differ_by_path():
    """One query, two answers with outcomes 1 and 0: the query has return .5 on one path and 0 on the other.

    Over the entries (.5, 1) and (0, 0) the mean is 3/8.
    """
    answers = [Branch(Kind.ANSWER, 1, [1], [-1.0], episode=i, rewards=[float(r)]) for i, r in enumerate((1, 0))]
    tree = Branch(Kind.PROMPT, 0, [0], children=[Branch(Kind.QUERY, 0, [1], [-1.0], answers)])
    nodes = build([(0, tree)], terms=1, notes=["step_reward"]).nodes
    found = hand.credit(nodes, "step_return", discount=0.5, scale=False).advantage.node
    assert found[1, :2].tolist() == pytest.approx([0.125, -0.375])
    assert found[2:4, 0].tolist() == pytest.approx([0.625, -0.375])


def test_returns_that_are_equal_but_for_rounding():
    """.1 + .2 + .3 in any order is no signal, though float32 sums differ."""
    orders = [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.3, 0.1), (0.6,), (0.7, -0.1)]
    nodes = chains(*[chain(0, 1.0, *order) for order in orders])
    found = advantages(nodes, "turn_return", discount=1.0, scale=True)
    assert [row[0] for row in found] == [0] * 5


def meta(*attempts: tuple[float, int], outcome: float, episode: int) -> Branch:
    """Attempts of (what its answer earned, searches before it) in one path; the last one earns the outcome."""
    turns: list[tuple[Kind, float]] = []
    for reward, searches in attempts:
        turns += [(Kind.QUERY, 0.0)] * searches + [(Kind.ANSWER, reward)]
    below: list[Branch] = []
    for turn, (kind, reward) in reversed(list(enumerate(turns))):
        end = {} if below else {"episode": episode, "rewards": [outcome]}
        below = [Branch(kind, turn, [1], [-1.0], below, notes={"step_reward": reward}, **end)]
        if turn:
            below = [Branch(Kind.OBSERVATION, turn, [2], children=below, notes={"step_reward": 9.0})]
    return Branch(Kind.PROMPT, 0, [0], children=below)


def metas(*trees: Branch) -> Nodes:
    return build([(0, tree) for tree in trees], terms=1).nodes


def test_turn_relative_leaves_one_out_by_attempt():
    """Attempts of three paths: (0, 1), (1, 0) and (1). First: 0 - 1, 1 - 1/2, 1 - 1/2. Second: 1 - 0, 0 - 1.

    Discounted by .5 per attempt: -1 + .5 = -.5 for both turns of the first attempt, then 1; .5 - .5 = 0, then -1; .5.
    """
    nodes = metas(
        meta((0, 1), (0, 0), outcome=1.0, episode=0),
        meta((1, 0), (0, 2), outcome=0.0, episode=1),
        meta((0, 0), outcome=1.0, episode=2),
    )
    found = advantages(nodes, "turn_relative", discount=0.5)
    assert found == close([[-0.5, -0.5, 1], [0, -1, -1, -1], [0.5]])


def test_turn_relative_alone_is_worth_nothing():
    """The second attempt of one path alone, and equal first ones."""
    nodes = metas(meta((0.5, 0), (0, 0), outcome=1.0, episode=0), meta((0, 1), outcome=0.5, episode=1))
    found = hand.credit(nodes, "turn_relative", discount=1.0, drop_equal=True)
    assert not found.advantage.node.any()
    assert not found.kept.any()


def test_turn_centred_within_an_episode_and_among_equal_turns():
    """Changes (3, 1) and (1), outcomes 1 and 0 less their mean: +-1/2; coefficient 1/2.

    Within episodes: +-1 and 0, which leaves the sum of the first at twice its outcome's. Among first turns: +-1.
    """
    nodes = chains(chain(0, 1.0, 3, 1), chain(0, 0.0, 1))
    options = {"coefficient": 0.5, "scale": False}
    assert advantages(nodes, "turn_centred", over="episode", **options) == close([[1, 0], [-0.5]])
    assert advantages(nodes, "turn_centred", over="turn", **options) == close([[1, 0.5], [-1]])
    with pytest.raises(InputError, match="over='batch' is neither 'episode' nor 'turn'"):
        hand.credit(nodes, "turn_centred", over="batch", **options)


def test_process_outcome_adds_two_levels():
    """Outcomes 1 and 0: +-1. Step scores (1, 0) and (1/2): mean 1/2, deviation 1/sqrt(6), so +-sqrt(6)/2 and 0."""
    nodes = chains(chain(0, 1.0, 1, 0), chain(0, 0.0, 0.5))
    high = sqrt(6) / 2
    own = advantages(nodes, "process_outcome", coefficient=0.5, to_go=False, scale=True)
    assert own == close([[1 + high / 2, 1 - high / 2], [-1]])
    rest = advantages(nodes, "process_outcome", coefficient=0.5, to_go=True, scale=True)
    assert rest == close([[1, 1 - high / 2], [-1]])


EVERY = {
    "step_return": {"discount": 0.9, "scale": True},
    "turn_return": {"discount": 0.9, "scale": True},
    "turn_relative": {"discount": 0.9},
    "turn_centred": {"coefficient": 1.0, "over": "turn", "scale": True},
    "process_outcome": {"coefficient": 1.0, "to_go": True, "scale": True},
}


@pytest.mark.parametrize("name", EVERY)
def test_no_signal_without_a_difference(name):
    """A group of one turn, equal episodes, and one that could be scored beside one that could not."""
    for episodes in [[chain(0, 1.0, 0.3)], [chain(0, 0.1, 0.3)] * 3, [chain(0, 1.0, 0.3), chain(0, nan, 0.7)]]:
        found = hand.credit(chains(*episodes), name, drop_equal=True, **EVERY[name])
        assert not found.advantage.node.any()
        assert not found.kept.any()


@pytest.mark.parametrize("name", EVERY)
def test_unscored_episodes_and_empty_turns_change_nothing(name):
    """An empty turn consumes no discount, earns nothing, and is in no group; what it says it earned is not read."""
    plain = [chain(0, 1.0, 0.5, 0), chain(0, 0.0, 0.25, 1)]
    expected = advantages(chains(*plain), name, **EVERY[name])
    empty = Chain(0, 0.0, earned(0.25, 1, 5), tokens=[1, 1, 0])
    found = advantages(chains(plain[0], empty, chain(0, nan, 3, 3)), name, **EVERY[name])
    assert [found[0], found[1][:2]] == close(expected)
    assert found[1][2] == 0
    assert not np.any(found[2])
