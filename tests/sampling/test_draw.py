"""Temperature and cuts: by hand, against a twin that goes through the tokens one by one, and by frequency."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.sampling.draw import Draw, columns, restricted, sample
from tests.sampling import twin


def cut(logp, draw: Draw) -> np.ndarray:
    return np.asarray(restricted(jnp.asarray([logp], jnp.float32), columns([draw], np.arange(1), 1))[0])


def test_the_temperature_counts():
    """Logits 0, 1, 2 at .6: -.203 for the last, not -.408."""
    draw, logits = columns([Draw(0.6)], np.arange(1), 1), jnp.array([[0.0, 1.0, 2.0]])
    first = jnp.zeros(1, jnp.int32)
    drawn = [sample(jax.random.split(jax.random.key(seed), 1), first, logits, draw) for seed in range(9)]
    assert {round(float(one.logp[0]), 3) for one in drawn if one.token[0] == 2} == {-0.203}
    np.testing.assert_allclose(drawn[0].entropy, 0.557, atol=1e-3)  # of .816, .154 and .029


def test_what_is_cut_is_made_up_for():
    """Probabilities .7, .2, .1 with top_p .8: log(.7 / .9) for the first, where the whole distribution has log .7."""
    found = cut(np.log([0.7, 0.2, 0.1]), Draw(top_p=0.8))
    np.testing.assert_allclose(found[:2], np.log([0.7 / 0.9, 0.2 / 0.9]), rtol=1e-5)
    assert round(float(found[0]), 3) == -0.251 and found[2] == -np.inf


@pytest.mark.parametrize(
    ("draw", "kept"),
    [
        (Draw(top_k=1), [0]),
        (Draw(top_k=9), [0, 1, 2, 3]),
        (Draw(top_p=0.39), [0]),  # the one that reaches it stays
        (Draw(top_p=0.41), [0, 1]),
        (Draw(min_p=0.45), [0, 1, 2]),  # .2 is half as likely as .4
        (Draw(min_p=1.0), [0]),
        (Draw(top_k=2, top_p=0.5), [0]),  # .4 is .571 of what top_k left
        (Draw(top_k=2, top_p=0.6), [0, 1]),
        (Draw(top_k=3, top_p=0.7, min_p=0.9), [0]),
    ],
    ids=str,
)
def test_cuts_in_their_order(draw, kept):
    probability = np.array([0.4, 0.3, 0.2, 0.1])
    found = cut(np.log(probability), draw)
    assert np.flatnonzero(np.isfinite(found)).tolist() == kept
    np.testing.assert_allclose(np.exp(found[kept]), probability[kept] / probability[kept].sum(), rtol=1e-5)


@given(
    logits=st.lists(st.integers(-20, 20), min_size=1, max_size=9, unique=True),
    top_k=st.integers(0, 10),
    top_p=st.sampled_from([0.05, 0.3, 0.52, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.07, 0.5, 1.0]),
)
def test_cuts_equal_the_twin(logits, top_k, top_p, min_p):
    logp = np.asarray(jax.nn.log_softmax(jnp.asarray(logits, jnp.float32) / 4))
    draw = Draw(top_k=top_k, top_p=top_p, min_p=min_p)
    np.testing.assert_allclose(cut(logp, draw), twin.cut(logp, draw), atol=1e-5)


def test_tokens_as_likely_as_the_last_one_kept_are_kept():
    assert np.isfinite(cut(np.log([0.3, 0.3, 0.3, 0.1]), Draw(top_k=1))).tolist() == [True, True, True, False]


def test_tokens_come_as_often_as_their_log_probabilities_say():
    logits, draw, count = jnp.array([0.0, 1.0, 2.0, 0.5]), Draw(0.8, top_p=0.9), 4000
    rows = columns([draw] * count, np.arange(count), count)
    logits = jnp.broadcast_to(logits, (count, 4))
    token, logp, _ = sample(jax.random.split(jax.random.key(0), count), jnp.zeros(count, jnp.int32), logits, rows)
    for one in range(4):
        share = float((token == one).mean())
        said = float(jnp.exp(logp[token == one]).mean()) if share else 0.0
        assert abs(share - said) < 0.03
    assert set(np.unique(token)) == {1, 2, 3}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"temperature": float("nan")}, "temperature must be 0 or more"),
        ({"top_k": -1}, "top_k must be 0 or more"),
        ({"top_p": 0.0}, "top_p above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p above 0 and at most 1"),
        ({"min_p": 1.5}, "min_p from 0 to 1"),
        ({"temperature": 0.0, "top_p": 0.9}, "at temperature 0 the most likely token is taken"),
    ],
)
def test_what_cannot_be_is_refused(given, said):
    with pytest.raises(InputError, match=said):
        Draw(**given)
