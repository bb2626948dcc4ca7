"""The critic: the policy's trunk, a head of one number, and values of the state before each token."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.models import decoder, value
from rlsearch.training.step import target_values
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind
from rlsearch.tree.pack import pack
from tests.models import small
from tests.training import cases

CFG = small.config(tied=False)
TOKENS = np.arange(1, 9, dtype=np.int32)[None]
ALONE = {
    "position": np.arange(8, dtype=np.int32)[None], "token_end": np.full((1, 8), 8, np.int32), "remat": False,
    "attention": "dense",
}  # fmt: skip


@functools.partial(jax.jit, static_argnames="cfg")
def values(params, cfg, token_id=TOKENS):
    return value.head(params, decoder.apply(params, cfg, token_id=token_id, **ALONE))


@functools.partial(jax.jit, static_argnames="cfg")
def hidden(params, cfg):
    return decoder.apply(params, cfg, token_id=TOKENS, **ALONE)


def test_it_starts_with_the_policy_s_trunk_and_says_nothing():
    policy = small.parameters(CFG)
    critic = value.from_policy(policy)
    assert set(policy) - set(critic) == {"head"}
    for name in set(critic) - {"value"}:
        jax.tree.map(np.testing.assert_array_equal, critic[name], policy[name])
    assert np.asarray(values(critic, CFG)).tolist() == [[0.0] * 8]


def test_a_value_is_a_line_over_the_last_hidden_state():
    policy, rng = small.parameters(CFG), np.random.default_rng(0)
    kernel = rng.normal(size=CFG.d_model).astype(np.float32)
    critic = {**value.from_policy(policy), "value": {"kernel": jnp.asarray(kernel), "bias": jnp.asarray([0.25])}}
    expected = np.asarray(hidden(policy, CFG), np.float64) @ kernel.astype(np.float64) + 0.25
    np.testing.assert_allclose(values(critic, CFG), expected, rtol=1e-5, atol=1e-5)


def test_values_are_float32_where_the_trunk_is_not():
    cfg = small.config()
    half = decoder.DecoderConfig(**{**vars(cfg), "dtype": "bfloat16", "param_dtype": "bfloat16"})
    found = values(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), cases.critic()), half)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, values(cases.critic(), cfg), atol=0.5)


def test_the_first_step_moves_the_head_alone():
    """Its kernel is 0, so nothing flows below it until it has moved; then everything below learns."""
    critic = value.from_policy(small.parameters(CFG))
    slope = jax.grad(lambda params: values(params, CFG).sum())
    first = slope(critic)
    assert np.asarray(first["value"]["kernel"]).all()
    assert float(first["value"]["bias"][0]) == 8.0
    assert not any(np.asarray(leaf).any() for name in ("embed", "blocks") for leaf in jax.tree.leaves(first[name]))
    moved = {**critic, "value": jax.tree.map(lambda p, g: p + 0.1 * g, critic["value"], first["value"])}
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(slope(moved)["blocks"]))


def test_a_value_is_of_the_state_before_its_token():
    """B096: for a response of three tokens, the value of each is that after the token before it: the prompt's last,
    the first, the second. So no token tells the critic what it is, and the last one is never read.
    """
    critic, cfg = cases.critic(), small.config()

    def found(prompt, response):
        answer = Branch(Kind.ANSWER, 0, response, [-1.0] * len(response), episode=0, rewards=[1.0])
        forest = build([(0, Branch(Kind.PROMPT, 0, prompt, children=[answer]))], terms=1)
        rows = pack(forest, width=8, targets=4, multiple=1).rows
        out = target_values(critic, cfg, rows, attention="dense", remat=False)
        return np.asarray(out)[0, : len(response)]

    sequence = values(critic, cfg, np.array([[1, 2, 3, 4, 5, 0, 0, 0]], np.int32))[0]
    assert found([1, 2], [3, 4, 5]).tolist() == pytest.approx(np.asarray(sequence)[[1, 2, 3]].tolist(), rel=1e-5)
    other = found([1, 2], [3, 4, 9])
    assert other.tolist() == found([1, 2], [3, 4, 5]).tolist()
    assert found([1, 2], [9, 4, 5])[0] == other[0]
    assert found([1, 2], [9, 4, 5])[1] != other[1]
