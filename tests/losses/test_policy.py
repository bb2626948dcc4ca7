"""The clipped objective: numbers by hand, the textbook formula, and what masked targets may not do."""

from __future__ import annotations

import dataclasses
from math import exp, log

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.losses import policy
from rlsearch.losses.policy import LossConfig

CONFIG = LossConfig(
    clip_low=0.2, clip_high=0.3, kl_coefficient=0.1, kl_estimator="k3", entropy_coefficient=0.05, reduction="token"
)


def targets(**columns) -> dict[str, np.ndarray | None]:
    """One row; what is not given is zero, used and without a reference."""
    size = len(next(iter(columns.values())))
    zero = np.zeros((1, size), np.float32)
    names = ("logp", "behavior_logp", "entropy", "positive", "negative", "weight")
    whole = dict.fromkeys(names, zero) | {"use": np.ones((1, size), bool), "reference_logp": None}
    return whole | {name: np.asarray(column)[None] for name, column in columns.items()}


def loss(config: LossConfig = CONFIG, **columns) -> float:
    return float(policy.objective(config, **targets(**columns))[0])


@given(st.floats(0.01, 5.0), st.lists(st.floats(-3, 3), min_size=1, max_size=6), st.floats(0, 1), st.floats(0, 2))
def test_clipping_by_sign_is_the_sum_of_textbook_minima(ratio, advantages, low, high):
    textbook = sum(min(ratio * a, min(max(ratio, 1 - low), 1 + high) * a) for a in advantages)
    positive, negative = sum(a for a in advantages if a > 0), sum(a for a in advantages if a < 0)
    found = policy.clipped(jnp.float32(ratio), jnp.float32(positive), jnp.float32(negative), low=low, high=high)
    assert float(found) == pytest.approx(textbook, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.5, 1.0, 1.3), (0.5, 1.0, 0.5), (1.5, -1.0, -1.5), (0.5, -1.0, -0.8), (1.1, 2.0, 2.2), (1.0, -2.0, -2.0)],
)
def test_each_side_of_each_clip_by_hand(ratio, advantage, expected):
    found = loss(logp=[log(ratio)], positive=[max(advantage, 0.0)], negative=[min(advantage, 0.0)])
    assert found == pytest.approx(-expected, rel=1e-5)


def test_a_clipped_token_has_no_gradient():
    def of(logp):
        columns = targets(behavior_logp=[0.0, 0.0], positive=[1.0, 0.0], negative=[0.0, -1.0])
        return policy.objective(CONFIG, **{**columns, "logp": logp})[0]

    gradient = jax.grad(of)
    assert gradient(jnp.log(jnp.array([[1.5, 0.5]])))[0].tolist() == [0, 0]
    assert gradient(jnp.log(jnp.array([[0.5, 1.5]])))[0].tolist() == pytest.approx([-0.5, 1.5])


def test_a_token_of_a_good_and_a_bad_episode():
    """Ratio 1.5, advantages +1 and -1 of weight 1/2: -(1.3 - 1.5) / 2. Summed before clipping they would vanish."""
    assert loss(logp=[log(1.5)], positive=[0.5], negative=[-0.5]) == pytest.approx(0.1)


def test_kl_and_entropy_weigh_as_their_token():
    found = loss(
        logp=[-1.0, -1.0], behavior_logp=[-1.0, -1.0], reference_logp=[-0.5, -1.0], entropy=[2.0, 1.0],
        weight=[0.25, 0.75],
    )  # fmt: skip
    assert found == pytest.approx(0.1 * 0.25 * (exp(0.5) - 1.5) - 0.05 * (0.25 * 2.0 + 0.75 * 1.0), rel=1e-5)


def test_metrics_are_sums_over_targets():
    _, sums = policy.objective(
        CONFIG,
        **targets(logp=[-1.0, -2.0, -1.0], behavior_logp=[-1.5, -1.5, -1.1], entropy=[1.0, 2.0, 3.0],
                  reference_logp=[-0.5, -2.0, -1.0]),
    )  # fmt: skip
    assert {name: float(value) for name, value in sums.items()} == pytest.approx(
        {"targets": 3, "entropy": 6, "logp_gap": 1.1, "clip_fraction": 2, "kl": exp(0.5) - 1.5}, rel=1e-5
    )


@pytest.mark.parametrize("sentinel", [50.0, 1.0, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("column", ["logp", "behavior_logp", "reference_logp", "entropy", "positive", "weight"])
def test_masked_targets_reach_neither_loss_nor_metrics_nor_gradients(column, sentinel):
    """B001, B084: p p a a a i i i a a with anything at all on the i's."""
    use = np.array([0, 0, 1, 1, 1, 0, 0, 0, 1, 1], bool)
    rng = np.random.default_rng(0)
    names = ("logp", "behavior_logp", "reference_logp", "entropy", "positive", "weight")
    clean = {name: rng.uniform(-1.5, -0.5, 10).astype(np.float32) for name in names}
    spoiled = clean | {column: np.where(use, clean[column], np.float32(sentinel))}

    def run(columns):
        def of(logp):
            return policy.objective(CONFIG, **{**targets(**columns, use=use), "logp": logp})

        return jax.value_and_grad(of, has_aux=True)(np.asarray(columns["logp"])[None])

    (loss, sums), gradient = run(spoiled)
    (expected, expected_sums), expected_gradient = run(clean)
    assert float(loss) == float(expected)
    assert {k: float(v) for k, v in sums.items()} == {k: float(v) for k, v in expected_sums.items()}
    np.testing.assert_array_equal(gradient, expected_gradient)
    assert (np.asarray(gradient)[0, ~use] == 0).all()


@given(st.integers(0, 999), st.integers(1, 9))
def test_parts_of_a_batch_add_up(seed, cut):
    """Weights hold the reduction, so that accumulation cannot change it."""
    rng = np.random.default_rng(seed)
    names = ("logp", "behavior_logp", "reference_logp", "entropy", "positive", "weight")
    columns = {name: rng.uniform(-1, 0, 10).astype(np.float32) for name in names}
    parts = [{name: column[part] for name, column in columns.items()} for part in (slice(cut), slice(cut, None))]
    assert sum(loss(**part) for part in parts) == pytest.approx(loss(**columns), rel=1e-4, abs=1e-5)


def test_supervised_is_the_mean_over_the_whole_batch():
    """Lengths 2 (loss 1) and 8 (loss 0), each in a part of its own: .2; the mean of the parts' means would be .5."""
    use, count = np.ones((1, 8), bool), jnp.float32(10)
    first, use_first = np.full((1, 8), -1.0, np.float32), np.arange(8)[None] < 2
    total = policy.supervised(logp=first, use=use_first, count=count)
    total += policy.supervised(logp=0 * first, use=use, count=count)
    assert float(total) == pytest.approx(0.2)
    spoiled = np.where(use_first, first, np.nan)
    assert float(policy.supervised(logp=spoiled, use=use_first, count=count)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reduction": "tokens"}, r"config\.loss\.reduction 'tokens': unknown; did you mean 'token'\?"),
        ({"kl_estimator": "k1"}, r"config\.loss\.kl_estimator 'k1': its gradient as a loss is zero in expectation"),
        ({"clip_low": 1.5}, r"clip_low 1\.5 and clip_high 0\.3 must be"),
        ({"clip_high": -0.1}, r"clip_low 0\.2 and clip_high -0\.1 must be"),
    ],
)
def test_choices_that_cannot_be_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(CONFIG, **change)
