"""What holds for every term beside the clip: inputs without a signal, slots without a token, parts of a batch."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.losses import targets as made_targets
from rlsearch.losses.policy import TERMS
from rlsearch.losses.targets import Given
from tests.losses.hand import DROPPED, KEPT, end, made, node, value_and_slope

OPTIONS = {
    "llds": {"gate": "sequence", "preserve": "good", "answers": 1.0},
    "sft": {"note": "expert", "above": 0.0},
    "dpo": {"beta": 0.5, "pairs": "extremes"},
    "pacs": {"beta": 0.5, "above": 0.5, "balance": True},
    "oreal": {"above": 0.5, "negative": 0.5, "multiply": True},
    "a_lol": {"ratio": "sequence", "clip": 0.9, "baseline": "note"},
    "a_lol_free": {"baseline": "note"},
    "rl_plus": {"low": 0.2, "high": 0.2, "behaviour": "recorded", "power": 0.5},
}
NAN = float("nan")
NOTES = {"expert": 1.0, "external": 1.0, "baseline": 0.25}


def columns(size: int) -> dict:
    logp = [-1.0 - 0.1 * i for i in range(size)]
    other = [-0.5 - 0.15 * i for i in range(size)]
    return {"logp": logp, "old": other, "reference": other, "behaviour": other}


def tree(*, rewards: tuple[float, float], tokens: int = 1, **how):
    """A shared search, and two answers."""
    ends = [end(tokens, reward, index, **NOTES) for index, reward in enumerate(rewards)]
    return made([node(tokens, *ends)], **columns(3 * tokens), **how)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    "how",
    [
        {"rewards": (NAN, NAN)},
        {"rewards": (1.0, 1.0), "credit": DROPPED},
        {"rewards": (1.0, 0.0), "tokens": 0},
    ],
    ids=["nothing scored", "all left out", "no tokens"],
)
def test_where_nothing_takes_part_there_is_nothing(name, how):
    value, slope = value_and_slope(name, tree(**how), **OPTIONS[name])
    assert value == 0.0
    assert slope == [0.0] * len(slope)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("rewards", [(1.0, 1.0), (0.0, 0.0), (1.0, NAN), (1.0, 0.0)])
def test_always_finite(name, rewards):
    value, slope = value_and_slope(name, tree(rewards=rewards, credit=KEPT), **OPTIONS[name])
    assert np.isfinite(value)
    assert np.isfinite(slope).all()
    if rewards == (1.0, 0.0):
        assert value != 0
        assert np.any(slope)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_episode_that_could_not_be_scored_is_not_learned_from(name):
    """Whatever its tokens say; what it shares is learned for the other's sake."""
    found = []
    for logp in (-0.1, -9.0):
        ends = [end(1, 1.0, 0, **NOTES), end(1, NAN, 1, **NOTES), end(1, 0.0, 2, **NOTES)]
        given = made([node(1, *ends)], **{**columns(4), "logp": [-1.0, -1.1, logp, -1.3]})
        found.append(value_and_slope(name, given, **OPTIONS[name]))
        assert found[-1][1][2] == 0.0
    assert found[0] == found[1]


@pytest.mark.parametrize("name", OPTIONS)
def test_what_stands_in_slots_without_a_token_reaches_nothing(name):
    """Sentinels of every kind, in the value and in the gradient."""
    targets, batch = tree(rewards=(1.0, 0.0))
    clean = value_and_slope(name, (targets, batch), **OPTIONS[name])
    for sentinel in (NAN, np.inf, -np.inf, 1e30):

        def padded(column, by):
            return jnp.concatenate([column, jnp.full(2, by, column.dtype)])

        scores = {n: padded(getattr(targets, n), sentinel) for n in ("behavior_logp", "old_logp", "reference_logp")}
        given = Given(padded(targets.node, 0), padded(targets.use, False), *scores.values(), None, None, None)

        def of(logp, given=given):
            found = made_targets.make(batch, given, logp=logp, entropy=jnp.zeros_like(logp), value=None)
            return TERMS[name].function(found, batch, coefficient=1.0, **OPTIONS[name])

        value, slope = jax.value_and_grad(of)(padded(targets.logp, sentinel))
        assert float(value) == pytest.approx(clean[0], rel=1e-6)
        np.testing.assert_allclose(slope, [*clean[1], 0.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in OPTIONS if not TERMS[name].whole])
def test_parts_of_a_batch_add_up(name):
    """Terms that are not ``whole`` are sums over tokens, with weights that credit fixes, so one pass is enough."""
    targets, batch = tree(rewards=(1.0, 0.0), tokens=2)
    blocks = [jax.tree.map(lambda leaf, at=at: leaf[at], targets) for at in (slice(0, 3), slice(3, 4), slice(4, 6))]
    parts = [value_and_slope(name, (block, batch), **OPTIONS[name]) for block in blocks]
    whole = value_and_slope(name, (targets, batch), **OPTIONS[name])
    assert sum(value for value, _ in parts) == pytest.approx(whole[0], rel=1e-5)
    np.testing.assert_allclose([x for _, slope in parts for x in slope], whole[1], rtol=1e-6)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_coefficient_scales_it(name):
    targets, batch = tree(rewards=(1.0, 0.0))
    one, three = (TERMS[name].function(targets, batch, coefficient=c, **OPTIONS[name]) for c in (1.0, 3.0))
    assert float(three) == pytest.approx(3 * float(one), rel=1e-6)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_term_that_reads_no_reference_keeps_none(name):
    targets, batch = tree(rewards=(1.0, 0.0))
    bare = replace(targets, reference_logp=None)
    if TERMS[name].reference:
        with pytest.raises(TypeError):
            TERMS[name].function(bare, batch, coefficient=1.0, **OPTIONS[name])
    else:
        TERMS[name].function(bare, batch, coefficient=1.0, **OPTIONS[name])
