"""Terms that hold likelihoods up, worked by hand.

The tree of most examples: a search of two tokens that a right and a wrong episode share, and an answer of one token
each. So there are six pairs of token and episode, and with reduction "token" each weighs 1/6.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.losses.policy import TERMS
from tests.losses.hand import DROPPED, end, made, node, value_and_slope

LLDS = {"gate": "sequence", "preserve": "all", "answers": 1.0}
LOGP = [-1.0, -1.0, -1.0, -1.0]
# The shared tokens change by -0.4 and +0.1, the right answer by -0.1, the wrong one by +0.5.
OLD = [-0.6, -1.1, -0.9, -1.5]


def tree(**how):
    return made([node(2, end(1, 1.0, 0), end(1, 0.0, 1))], **{"logp": LOGP, "old": OLD, **how})


@pytest.mark.parametrize(
    ("options", "value", "slope"),
    [
        # The right episode: -0.4 + 0.1 - 0.1 < 0, and two of its tokens have dropped. The wrong: +0.2, left alone.
        ({}, 0.4 + 0.1, [-1, 0, -1, 0]),
        # The shared turn: -0.3, for both episodes; the right answer -0.1; the wrong one +0.5.
        ({"gate": "turn"}, 0.4 + 0.4 + 0.1, [-2, 0, -1, 0]),
        ({"gate": "node"}, 0.4 + 0.4 + 0.1, [-2, 0, -1, 0]),
        ({"gate": "token"}, 0.4 + 0.4 + 0.1, [-2, 0, -1, 0]),
        # The wrong episode's advantage is -1/2.
        ({"gate": "turn", "preserve": "good"}, 0.4 + 0.1, [-1, 0, -1, 0]),
        ({"answers": 0.0}, 0.4, [-1, 0, 0, 0]),
        ({"answers": 0.5}, 0.4 + 0.05, [-1, 0, -0.5, 0]),
    ],
)
def test_llds(options, value, slope):
    """arXiv 2512.04220: only where the response has become less likely, and only the tokens that have."""
    found = value_and_slope("llds", tree(), **{**LLDS, **options})
    assert found[0] == pytest.approx(value / 6, rel=1e-5)
    np.testing.assert_allclose(found[1], np.array(slope) / 6, rtol=1e-5)


@pytest.mark.parametrize(("gate", "active"), [("sequence", False), ("turn", False), ("node", False), ("token", True)])
def test_a_gate_opens_by_the_sum_over_what_it_is_named_for(gate, active):
    """A turn of two tokens, -0.2 and +0.3: it has gained, although one token has dropped."""
    given = made([end(2, 1.0, 0)], logp=[-1.0, -1.0], old=[-0.8, -1.3])
    value, slope = value_and_slope("llds", given, **{**LLDS, "gate": gate})
    assert value == pytest.approx(0.2 / 2 if active else 0.0, rel=1e-5)
    np.testing.assert_allclose(slope, [-0.5 if active else 0.0, 0.0])


def test_a_turn_that_branches_is_one_action_and_two_nodes():
    """Node -0.1, its two continuations in the same turn +0.3 and -0.2: the turn is +0.2 for one, -0.3 for the other.

    By turns, the second episode's 0.1 + 0.2 count, of four pairs. By nodes also the first episode's 0.1.
    """
    how = {"logp": [-1.0] * 3, "old": [-0.9, -1.3, -0.8]}
    given = made([node(1, end(1, 1.0, 0, turn=0), end(1, 1.0, 1, turn=0))], **how)
    assert value_and_slope("llds", given, **{**LLDS, "gate": "turn"})[0] == pytest.approx(0.3 / 4, rel=1e-5)
    assert value_and_slope("llds", given, **{**LLDS, "gate": "node"})[0] == pytest.approx(0.4 / 4, rel=1e-5)


def test_an_episode_of_two_contexts_has_one_likelihood():
    """Contexts of -0.2 and +0.5: by itself the first has dropped, the episode has not. In two episodes it counts."""
    how = {"logp": [-1.0, -1.0], "old": [-0.8, -1.5]}
    assert value_and_slope("llds", made([end(1, 1.0, 0), end(1, 1.0, 0)], **how), **LLDS)[0] == 0.0
    apart = value_and_slope("llds", made([end(1, 1.0, 0), end(1, 1.0, 1)], **how), **LLDS)
    assert apart[0] == pytest.approx(0.2 / 2, rel=1e-5)


@pytest.mark.parametrize("gate", ["sequence", "turn", "node", "token"])
def test_a_policy_that_has_not_moved_is_left_alone(gate):
    assert value_and_slope("llds", tree(old=LOGP), **{**LLDS, "gate": gate}) == (0.0, [0.0] * 4)


def test_likelihood_of_a_right_episode_that_shares_with_wrong_ones_is_kept():
    """B006: a right and a wrong episode share 9 of 10 tokens and more, and the right one's likelihood falls.

    Logits of their own stand for the policy: log pi(t) = log sigmoid(z_t). With reduction "sequence" the right one's 12
    tokens weigh 1/12 each and the wrong one's 10 tokens 1/10, so GRPO lowers what they share, and the right ending,
    which is as good as certain, cannot make up for it. LLDS ends the fall.
    """
    start = np.array([1.0] * 9 + [9.0] * 3 + [1.0], np.float32)
    old = _log_sigmoid(start)
    targets, batch = made([node(9, end(3, 1.0, 0), end(1, 0.0, 1))], logp=old, reduction="sequence")
    np.testing.assert_array_equal(targets.advantage[:9, :2], [[0.5, -0.5]] * 9)
    push = np.asarray(targets.weight * targets.advantage).sum(axis=1)

    def means(coefficient: float) -> np.ndarray:
        """Of the right episode's log-probabilities, before each of 20 updates on the batch."""
        z, found = start, []
        for _ in range(20):
            logp = _log_sigmoid(z)
            found.append(logp[:12].mean())
            held = value_and_slope("llds", (replace(targets, logp=logp), batch), **{**LLDS, "preserve": "good"})[1]
            z = z + 20.0 * (push * np.exp(logp - old) - coefficient * np.array(held)) * (1 - np.exp(logp))
        return np.array(found) - found[0]

    assert (np.diff(means(0.0)) < 0).all()
    assert means(0.0)[-1] < -0.05
    assert means(1.0).min() > -0.01


def _log_sigmoid(z: np.ndarray) -> np.ndarray:
    return -np.log1p(np.exp(-z)).astype(np.float32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": "response"}, r"llds: gate 'response': unknown"),
        ({"preserve": "God"}, r"llds: preserve 'God': unknown; did you mean 'good'\?"),
    ],
)
def test_llds_refuses(options, message):
    with pytest.raises(InputError, match=message):
        value_and_slope("llds", tree(), **{**LLDS, **options})


SFT = {"note": None, "above": 0.5}
SPREAD = [-0.1, -0.2, -0.3, -0.7]


def test_sft_of_positives():
    """The right episode: (0.1 + 0.2 + 0.3) / 3. What it shares with the wrong one is learned for its sake alone."""
    value, slope = value_and_slope("sft", tree(logp=SPREAD, old=None), **SFT)
    assert value == pytest.approx(0.2, rel=1e-5)
    np.testing.assert_allclose(slope, [-1 / 3, -1 / 3, -1 / 3, 0], rtol=1e-5)


def test_sft_of_both_counts_shared_tokens_for_each():
    """Tokens: (0.1 + 0.2 + 0.3 + 0.1 + 0.2 + 0.7) / 6."""
    value, slope = value_and_slope("sft", tree(logp=SPREAD, old=None), **{**SFT, "above": -1.0})
    assert value == pytest.approx(1.6 / 6, rel=1e-5)
    np.testing.assert_allclose(slope, [-2 / 6, -2 / 6, -1 / 6, -1 / 6], rtol=1e-5)


@pytest.mark.parametrize(("reduction", "value"), [("token", 1.7 / 4), ("sequence", (0.1 + 1.6 / 3) / 2)])
def test_sft_weighs_as_the_reduction_does(reduction, value):
    """Positives of one token (0.1) and of three (0.2, 0.6, 0.8): a mean of tokens, or of episodes."""
    answers = [end(1, 1.0, 0), end(3, 1.0, 1), end(2, 0.0, 2)]
    given = made(answers, logp=[-0.1, -0.2, -0.6, -0.8, -5.0, -5.0], reduction=reduction)
    assert value_and_slope("sft", given, **SFT)[0] == pytest.approx(value, rel=1e-5)


def test_sft_of_experts_whatever_their_reward():
    given = made([end(1, 1.0, 0), end(1, 0.0, 1, expert=1.0)], logp=[-0.1, -0.4])
    value, slope = value_and_slope("sft", given, note="expert", above=0.0)
    assert value == pytest.approx(0.4)
    np.testing.assert_allclose(slope, [0.0, -1.0])


def test_sft_of_nobody_is_nothing():
    assert value_and_slope("sft", tree(), **{**SFT, "above": 1.0}) == (0.0, [0.0] * 4)


def test_sft_of_questions_that_are_left_out_is_nothing():
    """Two right answers: a group without a signal, which ``drop_equal`` leaves out of the batch."""
    given = made([end(1, 1.0, 0), end(1, 1.0, 1)], logp=[-0.1, -0.4], credit=DROPPED)
    assert value_and_slope("sft", given, **SFT) == (0.0, [0.0] * 2)


def test_a_note_that_nothing_writes_is_named():
    with pytest.raises(InputError, match=r"note 'expert' is read and nothing writes it \(there: fault\)"):
        value_and_slope("sft", made([end(1, 1.0, 0, fault=1.0)], logp=[-1.0]), note="expert", above=0.0)


def test_parts_of_sft_add_up():
    """It is a sum over tokens with weights that the batch fixes, so blocks may be gone through once."""
    targets, batch = tree(logp=SPREAD, old=None)
    whole = TERMS["sft"].function(targets, batch, coefficient=2.0, **SFT)
    halves = [jax.tree.map(lambda leaf, at=at: leaf[at], targets) for at in (slice(0, 1), slice(1, 4))]
    parts = [TERMS["sft"].function(half, batch, coefficient=2.0, **SFT) for half in halves]
    assert float(sum(parts)) == pytest.approx(float(whole), rel=1e-6)
    assert float(whole) == pytest.approx(0.4, rel=1e-5)
