"""The value loss: each side of its clip by hand, tokens of several episodes, and what it may not read."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.errors import InputError
from rlsearch.losses import policy
from rlsearch.losses.critic import value
from rlsearch.losses.targets import Targets


def targets(*, now, old, returns, weight) -> Targets:
    """One row of tokens; returns and weights of each episode through them."""
    now, old, returns, weight = (np.asarray(x, np.float32)[None] for x in (now, old, returns, weight))
    zero = np.zeros_like(now)
    return Targets(
        node=zero.astype(np.int32), use=np.ones_like(now, bool), logp=zero, entropy=zero, old_logp=zero,
        behavior_logp=zero, reference_logp=None, value=now, old_value=old, advantage=np.zeros_like(returns),
        returns=returns, weight=weight, spread=zero,
    )  # fmt: skip


def loss(clip, **columns) -> tuple[float, list[float]]:
    """The loss, and its gradient by the values."""
    made = targets(**columns)
    found, slope = jax.value_and_grad(
        lambda now: value(replace(made, value=now), None, coefficient=2.0, clip=clip)
    )(jnp.asarray(made.value))  # fmt: skip
    return float(found), np.asarray(slope)[0].tolist()


@pytest.mark.parametrize(
    ("now", "expected", "slope"),
    [(0.1, 0.81, -1.8), (0.5, 0.64, 0.0), (-0.5, 2.25, -3.0), (-0.1, 1.21, -2.2), (1.9, 0.81, 1.8), (1.5, 0.64, 0.0)],
)
def test_each_side_of_the_clip_by_hand(now, expected, slope):
    """Old value 0, return 1, clip .2, coefficient 2, so (V - 1)^2 with slope 2 (V - 1). Beyond .2 towards the return
    the larger error is that of .2, which does not move; away from it, or past it by more than .8, it is V's own.
    """
    given = {"now": [now], "old": [0.0], "returns": [[1.0]], "weight": [[1.0]]}
    found, gradient = loss(0.2, **given)
    assert (found, gradient) == (pytest.approx(expected, rel=1e-5), [pytest.approx(slope, rel=1e-5, abs=1e-6)])
    free, gradient = loss(None, **given)
    assert (free, gradient) == (pytest.approx((now - 1) ** 2, rel=1e-5), [pytest.approx(2 * (now - 1), rel=1e-5)])


def test_a_token_of_two_episodes_is_pulled_by_each():
    """Returns 1 and 0 with weights 3/4 and 1/4, value .5: 3/4 x .25 + 1/4 x .25, slope 2 (3/4 x -.5 + 1/4 x .5)."""
    found = loss(None, now=[0.5], old=[0.5], returns=[[1.0, 0.0]], weight=[[0.75, 0.25]])
    assert found == (pytest.approx(0.25), [pytest.approx(-0.5)])


def test_the_clip_is_decided_for_each_episode():
    """Value .5 from 0, clip .2: held for the return 1 (.64, no slope), free for the return 0 (.25, slope 1)."""
    found = loss(0.2, now=[0.5], old=[0.0], returns=[[1.0, 0.0]], weight=[[0.5, 0.5]])
    assert found == (pytest.approx(0.445), [pytest.approx(0.5)])


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 0.1, 0.5]))
def test_against_a_loop(seed, clip):
    rng = np.random.default_rng(seed)
    now, old = rng.normal(size=(2, 4))
    returns, weight = rng.normal(size=(4, 3)), rng.integers(3, size=(4, 3)) / 4
    total = 0.0
    for t in range(4):
        for k in range(3):
            errors = [(now[t] - returns[t, k]) ** 2]
            if clip is not None:
                errors.append((min(max(now[t], old[t] - clip), old[t] + clip) - returns[t, k]) ** 2)
            total += 2.0 * weight[t, k] * max(errors) / 2
    assert loss(clip, now=now, old=old, returns=returns, weight=weight)[0] == pytest.approx(total, rel=1e-5, abs=1e-6)


def test_what_weighs_nothing_is_not_learned():
    found, gradient = loss(0.2, now=[5.0, 1.0], old=[0.0, 1.0], returns=[[7.0], [1.0]], weight=[[0.0], [1.0]])
    assert (found, gradient) == (0.0, [0.0, 0.0])


def test_what_cannot_be_is_refused():
    given = targets(now=[0.0], old=[0.0], returns=[[0.0]], weight=[[1.0]])
    with pytest.raises(InputError, match=r"value: clip 0\.0 must be above 0"):
        value(given, None, coefficient=1.0, clip=0.0)
    with pytest.raises(InputError, match="this credit says no returns"):
        value(replace(given, returns=None), None, coefficient=1.0, clip=None)


def test_a_config_chooses_it():
    section = {
        "level": "token", "clip": None, "mismatch": None, "reduction": {"kind": "token"}, "kl": None, "entropy": 0.0,
        "terms": ({"kind": "value", "coefficient": 0.5, "clip": None},),
    }  # fmt: skip
    config = policy.read(ConfigDict(section))
    assert (config.critic, config.whole, config.reference) == (True, False, False)
    with pytest.raises(InputError, match="value misses clip"):
        policy.read(ConfigDict({**section, "terms": ({"kind": "value", "coefficient": 0.5},)}))
