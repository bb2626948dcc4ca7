"""A reward model: a score at the last token of each sequence, packed or not, and that it learns."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlsearch.losses.reward import bradley_terry, regression
from rlsearch.models import reward, value
from tests.models import small
from tests.training import cases

CFG = small.config()


@functools.partial(jax.jit, static_argnames="cfg")
def alone(params, token_id, length, cfg=CFG):
    """Each row one sequence of its own length, with padding behind it."""
    index = jnp.broadcast_to(jnp.arange(token_id.shape[1])[None], token_id.shape)
    return reward.score(
        params, cfg, token_id=token_id, position=index, token_end=jnp.full_like(index, token_id.shape[1]),
        last=length[:, None] - 1, remat=False, attention="dense",
    )[:, 0]  # fmt: skip


def test_it_reads_the_last_token_and_what_is_before_it():
    rng = np.random.default_rng(0)
    token_id, length = rng.integers(32, size=(3, 8)), np.array([8, 5, 1])
    found = np.asarray(alone(cases.critic(), token_id, length))
    behind, last, before = token_id.copy(), token_id.copy(), token_id.copy()
    behind[1, 5:] += 1
    last[1, 4] += 1
    before[1, 0] += 1
    np.testing.assert_array_equal(alone(cases.critic(), behind % 32, length), found)
    for other in (last, before):
        assert (np.asarray(alone(cases.critic(), other % 32, length)) != found).tolist() == [False, True, False]


def test_two_answers_that_share_their_prompt_once():
    """Prompt 1 2 3, answers 4 5 and 6, packed as a tree in one row; the score of each is that of it alone."""
    token_id = np.array([[1, 2, 3, 4, 5, 6, 0, 0]])
    found = reward.score(
        cases.critic(), CFG, token_id=token_id, position=np.array([[0, 1, 2, 3, 4, 3, 0, 0]]),
        token_end=np.array([[6, 6, 6, 5, 5, 6, 7, 8]]), last=np.array([[4, 5]]), remat=False, attention="dense",
    )  # fmt: skip
    apart = alone(cases.critic(), np.array([[1, 2, 3, 4, 5, 0, 0, 0], [1, 2, 3, 6, 0, 0, 0, 0]]), np.array([5, 4]))
    np.testing.assert_allclose(found[0], apart, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", ["preferences", "numbers"])
def test_it_learns(loss):
    """Sequences that end in an odd token are better; ten updates find out on those that they are made with."""
    rng = np.random.default_rng(1)
    token_id, length = rng.integers(32, size=(16, 8)), rng.integers(2, 9, size=16)
    odd = np.arange(16) < 8
    token_id[np.arange(16), length - 1] = np.where(odd, 1, 2) + 2 * rng.integers(15, size=16)
    use = np.ones(8, bool)

    def objective(params):
        score = alone(params, token_id, length)
        if loss == "numbers":
            return regression(score, odd.astype(np.float32), np.ones(16, bool))
        return bradley_terry(score[:8], score[8:], use, margin=0.0)

    params, optimizer = value.from_policy(small.parameters(CFG)), optax.adam(0.03)
    state, step = optimizer.init(params), jax.jit(jax.value_and_grad(objective))
    first, _ = step(params)
    for _ in range(10):
        _, gradient = step(params)
        updates, state = optimizer.update(gradient, state)
        params = optax.apply_updates(params, updates)
    assert float(first) == pytest.approx(0.5 if loss == "numbers" else np.log(2))
    assert float(step(params)[0]) < 0.2 * float(first)
