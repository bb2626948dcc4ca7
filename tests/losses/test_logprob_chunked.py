"""Log-probabilities and entropy in chunks, against the same from all logits at once."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxprs_in_params
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from rlsearch.errors import InputError
from rlsearch.losses import logprob
from rlsearch.models import sharding
from rlsearch.models.sharding import MeshConfig

COTANGENTS = (1.0, -0.3)


def inputs(seed: int, lead: tuple[int, ...], targets: int, width: int, vocabulary: int, tied: bool, scale: float = 1.0):
    """Hidden states, a kernel in its layout, and targets."""
    rng = np.random.default_rng(seed)
    hidden = scale * rng.normal(size=(*lead, targets, width))
    kernel = rng.normal(size=(vocabulary, width) if tied else (width, vocabulary))
    token_id = rng.integers(0, vocabulary, (*lead, targets))
    return jnp.asarray(hidden, jnp.float32), jnp.asarray(kernel, jnp.float32), jnp.asarray(token_id, jnp.int32)


def plain(hidden, kernel, token_id, *, tied: bool, temperature: float):
    """The twin: every logit, log_softmax, jax's own gradient."""
    logits = jnp.matmul(hidden, kernel.T if tied else kernel, preferred_element_type=jnp.float32)
    logp = jax.nn.log_softmax(logits / temperature)
    return jnp.take_along_axis(logp, token_id[..., None], -1)[..., 0], -(jnp.exp(logp) * logp).sum(-1)


def weighed(function):
    """A scalar that depends on both outputs, on every target by another weight; with the outputs."""

    def loss(hidden, kernel, token_id):
        logp, entropy = function(hidden, kernel, token_id)
        weight = jnp.cos(jnp.arange(logp.size, dtype=jnp.float32)).reshape(logp.shape)
        return (weight * (COTANGENTS[0] * logp + COTANGENTS[1] * entropy)).sum(), (logp, entropy)

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))


def assert_equal(found, expected, *, rtol: float, atol: float):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), found, expected)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**16),
    lead=st.sampled_from([(), (1,), (3,), (2, 2)]),
    targets=st.integers(1, 13),
    chunk=st.integers(0, 14),
    vocabulary=st.integers(2, 40),
    tied=st.booleans(),
    temperature=st.sampled_from([0.3, 0.6, 1.0, 2.0]),
)
def test_values_and_gradients_are_those_of_all_logits(seed, lead, targets, chunk, vocabulary, tied, temperature):
    arguments = inputs(seed, lead, targets, 5, vocabulary, tied)
    twin = weighed(functools.partial(plain, tied=tied, temperature=temperature))(*arguments)
    fast = weighed(functools.partial(logprob.score_hidden, tied=tied, temperature=temperature, chunk=chunk))(*arguments)
    assert_equal(fast, twin, rtol=2e-4, atol=2e-4)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(fast))


@pytest.mark.parametrize("chunk", [0, 4])
def test_capped_logits_are_those_of_the_model(chunk):
    """Gemma 2 caps its logits before the temperature; values and gradients are jax's own of that."""
    arguments = inputs(5, (2,), 9, 5, 20, True, scale=2.0)

    def capped(hidden, kernel, token_id):
        logits = 3.0 * jnp.tanh(hidden @ kernel.T / 3.0)
        return logprob.score(logits, token_id, temperature=0.7)

    fast = functools.partial(logprob.score_hidden, tied=True, temperature=0.7, chunk=chunk, cap=3.0)
    assert_equal(weighed(fast)(*arguments), weighed(capped)(*arguments), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("chunk", [0, 4])
def test_bfloat16_states_and_a_float32_kernel(tied, chunk):
    """Values are those of rounded inputs; the kernel's gradient is summed over tokens in float32."""
    hidden, kernel, token_id = inputs(3, (2,), 300, 16, 50, tied)
    rounded = hidden.astype(jnp.bfloat16)
    twin = weighed(functools.partial(plain, tied=tied, temperature=0.7))(
        rounded.astype(jnp.float32), kernel.astype(jnp.bfloat16).astype(jnp.float32), token_id
    )
    found = weighed(functools.partial(logprob.score_hidden, tied=tied, temperature=0.7, chunk=chunk))(
        rounded, kernel, token_id
    )
    assert_equal(found[0], twin[0], rtol=1e-4, atol=1e-4)
    (of_hidden, of_kernel), (twin_hidden, twin_kernel) = found[1], twin[1]
    assert (of_hidden.dtype, of_kernel.dtype) == (jnp.bfloat16, jnp.float32)
    assert_equal(of_hidden.astype(jnp.float32), twin_hidden, rtol=0.02, atol=0.02 * float(jnp.abs(twin_hidden).max()))
    assert_equal(of_kernel, twin_kernel, rtol=0.02, atol=0.01 * float(jnp.abs(twin_kernel).max()))


def test_the_kernels_gradient_is_summed_in_float32():
    """A thousand equal small terms in bfloat16 would stop growing at 256 of them."""
    hidden = jnp.ones((1, 1024, 1), jnp.bfloat16)
    token_id = jnp.zeros((1, 1024), jnp.int32)

    def loss(kernel):
        return logprob.score_hidden(hidden, kernel, token_id, tied=True, temperature=1.0, chunk=1)[0].sum()

    gradient = jax.jit(jax.grad(loss))(jnp.zeros((2, 1)))
    np.testing.assert_allclose(gradient, [[512.0], [-512.0]], rtol=1e-6)


def test_gradient_against_finite_differences():
    """Central differences of the plain formula in double precision."""
    hidden, kernel, token_id = (np.asarray(leaf) for leaf in inputs(5, (2,), 5, 3, 7, True))
    weight = np.cos(np.arange(10.0)).reshape(2, 5)

    def loss(hidden, kernel):
        scaled = np.einsum("bse,ve->bsv", hidden, kernel) / 0.6
        logp = scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))
        chosen = np.take_along_axis(logp, token_id[..., None], -1)[..., 0]
        return (weight * (COTANGENTS[0] * chosen - COTANGENTS[1] * (np.exp(logp) * logp).sum(-1))).sum()

    score = functools.partial(logprob.score_hidden, tied=True, temperature=0.6, chunk=2)
    _, gradients = weighed(score)(hidden, kernel, token_id)
    doubles = [hidden.astype(np.float64), kernel.astype(np.float64)]
    for which, gradient in enumerate(gradients):
        expected = np.zeros(gradient.shape)
        for index in np.ndindex(gradient.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = [leaf.copy() for leaf in doubles]
                moved[which][index] += step
                sides.append(loss(*moved))
            expected[index] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("chunk", [0, 1, 2])
def test_the_temperature_is_applied(chunk):
    """B065: T = .6 on logits 0, 1, 2; the raw logits would give -.408."""
    hidden, kernel = jnp.ones((1, 3, 1)), jnp.array([[0.0], [1.0], [2.0]])
    logp, _ = logprob.score_hidden(hidden, kernel, jnp.array([[2, 2, 0]]), tied=True, temperature=0.6, chunk=chunk)
    np.testing.assert_allclose(logp, [[-0.2026, -0.2026, -0.2026 - 2 / 0.6]], atol=1e-4)


@pytest.mark.parametrize("chunk", [0, 3])
def test_extreme_logits_stay_finite(chunk):
    """Logits of +-1e4: the sure token has log-probability 0, the impossible one -2e4, and no gradient is NaN."""
    hidden = jnp.ones((1, 4, 1))
    kernel = jnp.array([[1e4], [-1e4], [-1e4]])
    token_id = jnp.array([[0, 1, 0, 1]])
    score = functools.partial(logprob.score_hidden, tied=True, temperature=1.0, chunk=chunk)
    (_, (logp, entropy)), gradients = weighed(score)(hidden, kernel, token_id)
    np.testing.assert_allclose(logp, [[0, -2e4, 0, -2e4]])
    np.testing.assert_allclose(entropy, np.zeros((1, 4)))
    assert all(np.isfinite(leaf).all() for leaf in gradients)
    assert float(jnp.abs(gradients[1]).max()) > 0


def test_padding_does_not_matter():
    """Targets that the loss leaves out are finite and have no gradient, whatever their states and ids."""
    hidden, kernel, token_id = inputs(6, (2,), 7, 4, 9, True)
    use = jnp.arange(7)[None] < jnp.array([[3], [6]])

    def step(hidden, kernel, token_id):
        logp, entropy = logprob.score_hidden(hidden, kernel, token_id, tied=True, temperature=1.0, chunk=3)
        return jnp.where(use, logp + entropy, 0.0).sum(), (logp, entropy)

    step = jax.jit(jax.value_and_grad(step, argnums=(0, 1), has_aux=True))
    (value, outputs), gradients = step(hidden, kernel, token_id)
    other = jnp.where(use[..., None], hidden, 0.0), kernel, jnp.where(use, token_id, 0)
    (same, spoiled), others = step(*other)
    assert value == same
    assert all(np.isfinite(leaf).all() for leaf in (*outputs, *spoiled))
    np.testing.assert_array_equal(gradients[0][~use], 0)
    assert_equal(others, gradients, rtol=0, atol=0)


@pytest.mark.parametrize(("axes", "chunk"), [((2, 2, 1, 2), 5), ((1, 1, 1, 8), 3), ((4, 1, 1, 2), 0)])
@pytest.mark.parametrize("tied", [True, False])
def test_on_a_mesh_with_the_head_shared_out(axes, chunk, tied):
    """Eight devices, rows over data and fsdp, the vocabulary over model, as the sharding table lays them out."""
    arguments = inputs(7, (8,), 12, 8, 32, tied)
    twin = weighed(functools.partial(plain, tied=tied, temperature=0.8))(*arguments)
    mesh = sharding.make_mesh(MeshConfig(*axes))
    head = {"embed": {"embedding": arguments[1]}} if tied else {"head": {"kernel": arguments[1]}}
    [place] = jax.tree.leaves(sharding.shard(head, mesh))
    rows = NamedSharding(mesh, sharding.ROWS)
    placed = [jax.device_put(leaf, where) for leaf, where in zip(arguments, (rows, place, rows), strict=True)]
    assert "model" in str(place.spec) and place.spec != P()
    found = weighed(functools.partial(logprob.score_hidden, tied=tied, temperature=0.8, chunk=chunk))(*placed)
    assert_equal(found, twin, rtol=1e-4, atol=1e-4)


def avals(jaxpr):
    """The shapes of every value of a program and of the programs inside it."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in (*equation.invars, *equation.outvars))
        for inner in jaxprs_in_params(equation.params):
            yield from avals(inner)


@pytest.mark.parametrize("tied", [True, False])
def test_tokens_times_vocabulary_never_exists(tied):
    """Forward and backward at a real vocabulary; nothing is computed, only traced. The embedding is not transposed."""
    rows, targets, width, vocabulary, chunk = 2, 1000, 64, 49152, 128
    kernel = (vocabulary, width) if tied else (width, vocabulary)
    shapes = [
        jax.ShapeDtypeStruct((rows, targets, width), jnp.bfloat16),
        jax.ShapeDtypeStruct(kernel, jnp.float32),
        jax.ShapeDtypeStruct((rows, targets), jnp.int32),
    ]

    def sizes(chunk: int) -> list[tuple[int, ...]]:
        score = functools.partial(logprob.score_hidden, tied=tied, temperature=1.0, chunk=chunk)
        return list(avals(jax.make_jaxpr(weighed(score))(*shapes).jaxpr))

    logits = [shape for shape in sizes(chunk) if vocabulary in shape and shape != kernel]
    assert max(np.prod(shape) for shape in logits) <= rows * chunk * vocabulary
    assert kernel[::-1] not in logits
    assert (rows, targets, vocabulary) in sizes(0)


def test_a_negative_chunk_is_refused():
    with pytest.raises(InputError, match="logp_chunk is -1"):
        logprob.score_hidden(*inputs(8, (1,), 3, 2, 4, True), tied=True, temperature=1.0, chunk=-1)
