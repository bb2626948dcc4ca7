"""Potentials worked by hand: .2 at the start, then .5, .4 and .9 after three turns."""

from __future__ import annotations

from math import nan, sqrt

import pytest

from rlsearch.tree.build import build
from rlsearch.tree.forest import Nodes
from tests.credit import hand
from tests.credit.hand import Chain

PLAIN = {"coefficient": 1.0, "discount": 1.0, "watermark": False, "to_go": False, "relative": False, "outcome": False,
         "scale": True}  # fmt: skip


def chains(*episodes: tuple[float, float, tuple[float, ...]]) -> Nodes:
    """Episodes of one question: reward, potential before the first turn, potentials after each.

    Observations say 9, which must not be read.
    """
    roots = []
    for i, (reward, start, after) in enumerate(episodes):
        root = Chain(0, reward, [{"potential": phi} for phi in after], observed={"potential": 9.0}).branch(i)
        root.notes = {"potential": start}
        roots.append((0, root))
    return build(roots, terms=1).nodes


ONE = chains((1.0, 0.2, (0.5, 0.4, 0.9)))


def found(nodes: Nodes, **changed) -> list[list[float]]:
    return hand.advantages(nodes, "potential_shaping", **{**PLAIN, **changed})


def close(*rows) -> list:
    return [pytest.approx(row, abs=1e-6) for row in rows]


def test_differences_telescope():
    """.3, -.1, .5 sum to .9 - .2."""
    values = found(ONE)
    assert values == close([0.3, -0.1, 0.5])
    assert sum(values[0]) == pytest.approx(0.9 - 0.2)


def test_discounted_differences():
    """.5 x .5 - .2, .5 x .4 - .5, .5 x .9 - .4; and twice that."""
    assert found(ONE, discount=0.5) == close([0.05, -0.3, 0.05])
    assert found(ONE, discount=0.5, coefficient=2.0) == close([0.1, -0.6, 0.1])


def test_returns_of_shaping():
    """What is still to come: .9 - .2, .9 - .5, .9 - .4. Discounted by .5: .05 + .5 (-.3 + .5 x .05) = -.0875, ..."""
    assert found(ONE, to_go=True) == close([0.7, 0.4, 0.5])
    assert found(ONE, to_go=True, discount=0.5) == close([-0.0875, -0.275, 0.05])


def test_the_watermark_pays_for_new_heights_alone():
    """MIG: .5 over .2; .4 is below .5; .9 over .5."""
    assert found(ONE, watermark=True) == close([0.3, 0, 0.4])


def test_the_outcome_is_added():
    """Rewards 1 and 0: +-1, or +-1/2 unscaled. The second episode's potential never moves."""
    nodes = chains((1.0, 0.2, (0.5, 0.4, 0.9)), (0.0, 0.3, (0.3,)))
    assert found(nodes, outcome=True) == close([1.3, 0.9, 1.5], [-1])
    assert found(nodes, outcome=True, scale=False) == close([0.8, 0.4, 1.0], [-0.5])


def test_shaping_relative_to_the_turns_of_the_question():
    """Differences .3, .1 and -.1: mean .1, and a deviation of .2 sqrt(2/3)."""
    nodes = chains((1.0, 0.2, (0.5, 0.6)), (1.0, 0.4, (0.3,)))
    unit = sqrt(3 / 2)
    assert found(nodes, relative=True) == close([unit, 0], [-unit])
    assert found(nodes, relative=True, outcome=True) == close([unit, 0], [-unit])  # equal outcomes add nothing


def test_a_shared_turn_is_paid_the_same_on_every_path():
    """A difference belongs to the turn: both answers below one query leave it .5 - .2."""
    tree = Chain(0, 1.0, [{"potential": 0.5}, {"potential": 0.9}]).branch(0)
    other = Chain(0, 0.0, [{"potential": 0.5}, {"potential": 0.1}]).branch(1)
    observation = tree.children[0].children[0]
    observation.children += other.children[0].children[0].children
    tree.notes = {"potential": 0.2}
    nodes = build([(0, tree)], terms=1).nodes
    values = hand.credit(nodes, "potential_shaping", **PLAIN).advantage.node
    assert values[1, :2].tolist() == pytest.approx([0.3, 0.3])
    assert [values[3, 0], values[4, 0]] == pytest.approx([0.4, -0.4])


@pytest.mark.parametrize("outcome", [True, False])
@pytest.mark.parametrize("relative", [True, False])
def test_no_signal_without_a_difference(outcome, relative):
    """A potential that never moves, for one episode, for equal ones, and beside one that could not be scored.

    A tenth is no sum of powers of two; multiplied and subtracted it must still leave nothing.
    """
    still = (1.0, 0.1, (0.1, 0.1))
    for episodes in [[still], [still] * 3, [still, (nan, 0.0, (0.7, 0.2))]]:
        options = {**PLAIN, "outcome": outcome, "relative": relative, "to_go": True}
        credit = hand.credit(chains(*episodes), "potential_shaping", drop_equal=True, **options)
        assert not credit.advantage.node.any()
        assert not credit.kept.any()


def test_an_episode_whose_potential_moves_is_kept_though_outcomes_are_equal():
    nodes = chains((1.0, 0.2, (0.5,)), (1.0, 0.2, (0.2,)))
    credit = hand.credit(nodes, "potential_shaping", drop_equal=True, **{**PLAIN, "outcome": True})
    assert credit.kept.sum() == 1


def test_an_empty_turn_says_nothing():
    """Its potential is not read, and the next turn is compared with the one before it."""
    root = Chain(0, 1.0, [{"potential": phi} for phi in (0.5, 7.0, 0.9)], tokens=[1, 0, 1]).branch(0)
    root.notes = {"potential": 0.2}
    assert found(build([(0, root)], terms=1).nodes) == close([0.3, 0, 0.4])
