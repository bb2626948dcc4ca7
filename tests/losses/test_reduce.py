"""Reductions by hand: weights of one token of each episode."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.losses import reduce

TWO = (True, True)


def weigh(reduction, lengths: list[float], kept=TWO) -> np.ndarray:
    """Weight of a token of each episode; each is one node below a prompt, which the policy did not write."""
    tokens = np.stack([np.zeros(len(lengths)), np.where(kept, lengths, 0.0)], axis=1).astype(np.float32)
    turn = np.zeros(tokens.shape, np.int32)
    return np.asarray(reduction(jnp.asarray(tokens), jnp.arange(len(lengths)), turn))[:, 1]


def total(reduction, lengths: list[float], losses: list[float], kept=TWO) -> float:
    """Loss of episodes whose tokens all have the same loss."""
    weight = np.where(kept, weigh(reduction, lengths, kept), 0.0)
    return float((weight * np.array(lengths) * np.array(losses)).sum())


ALL = [*[f for n, f in reduce.REDUCTIONS.items() if n != "constant"], functools.partial(reduce.constant, length=4.0)]


@pytest.mark.parametrize(("lengths", "token", "sequence"), [([2.0, 8.0], 0.2, 0.5), ([1.0, 9.0], 0.1, 0.5)])
def test_the_first_loses_one_the_second_nothing(lengths, token, sequence):
    assert total(reduce.token, lengths, [1.0, 0.0]) == pytest.approx(token)
    assert total(reduce.sequence, lengths, [1.0, 0.0]) == pytest.approx(sequence)


def test_what_is_left_out_is_in_no_denominator():
    """B075: a finished row of 4 tokens and a truncated one of 100: the denominator is 4."""
    for reduction in ALL:
        assert weigh(reduction, [4.0, 100.0], (True, False))[0] == 0.25


@pytest.mark.parametrize("reduction", ALL)
def test_copies_of_the_same_rows_do_not_change_the_loss(reduction):
    """B076: G = 4 and G = 8."""
    lengths, losses = [3.0, 5.0, 2.0, 7.0], [1.0, 0.5, 2.0, 0.0]
    once = total(reduction, lengths, losses, (True,) * 4)
    assert total(reduction, lengths * 2, losses * 2, (True,) * 8) == pytest.approx(once, rel=1e-6)


@pytest.mark.parametrize("reduction", ALL)
@pytest.mark.parametrize(("lengths", "kept"), [([0.0, 0.0], [True, True]), ([3.0, 4.0], [False, False])])
def test_nothing_kept_is_finite(reduction, lengths, kept):
    assert np.isfinite(weigh(reduction, lengths, kept)).all()


@pytest.mark.parametrize("reduction", ALL)
def test_an_episode_without_tokens_takes_no_weight_from_the_others(reduction):
    """B018."""
    alone = total(reduction, [4.0], [1.0], (True,))
    assert total(reduction, [4.0, 0.0], [1.0, 5.0]) == pytest.approx(alone) == 1.0


def weigh_nodes(reduction, tokens: list[list[float]], episode: list[int]) -> np.ndarray:
    found = reduction(
        jnp.asarray(tokens, jnp.float32), jnp.asarray(episode), jnp.zeros((len(tokens), len(tokens[0])), int)
    )
    return np.asarray(found) * (np.asarray(tokens) > 0)


def test_nodes_share_what_an_episode_weighs():
    """Two episodes: nodes of 2 and 4 tokens, and one of 3: 1 / (2 x 2 x 2), 1 / (2 x 2 x 4), 1 / (2 x 1 x 3)."""
    found = weigh_nodes(reduce.node, [[2, 4], [3, 0]], [0, 1])
    np.testing.assert_allclose(found, [[1 / 8, 1 / 16], [1 / 6, 0]], rtol=1e-6)


def test_a_constant_length_divides_every_episode():
    """Dr. GRPO: 1 / (2 episodes x 5), whatever was written."""
    found = weigh_nodes(functools.partial(reduce.constant, length=5.0), [[2, 4], [3, 0]], [0, 1])
    np.testing.assert_allclose(found, [[0.1, 0.1], [0.1, 0]], rtol=1e-6)


@pytest.mark.parametrize("reduction", ALL[1:])
def test_contexts_of_an_episode_share_its_weight(reduction):
    """Paths of 2 and 3 tokens of one episode beside one of 5 of another: each episode has half of the whole weight."""
    tokens = np.array([[2.0], [3.0], [5.0]])
    found = (weigh_nodes(reduction, tokens.tolist(), [0, 0, 2]) * tokens).sum(axis=1)
    assert found[:2].sum() == pytest.approx(found[2], rel=1e-6)
    if reduction in (reduce.sequence, reduce.node):
        assert found[2] == pytest.approx(0.5, rel=1e-6)
