"""The product with weights: the gradients of ``jax.lax.dot_general``, and what it refuses."""

import jax
import jax.numpy as jnp
import pytest

from rlsearch.errors import InputError
from rlsearch.models import decoder, product
from tests.models import small

SHAPES = [
    ((3, 5, 4), (4, 7), 1),  # wider than its input
    ((3, 5, 7), (7, 4), 1),  # narrower
    ((3, 5, 4), (4, 2, 6), 1),  # to heads
    ((3, 5, 2, 6), (2, 6, 4), 2),  # from heads
    ((3, 5, 2, 2), (2, 2, 3, 3), 2),
    ((4,), (4, 7), 1),  # one token
]


def dims(x, kernel, axes):
    return (tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))), ((), ())


@pytest.mark.parametrize(("of_x", "of_kernel", "axes"), SHAPES)
def test_it_is_the_product_and_has_its_gradients(of_x, of_kernel, axes):
    x, kernel = (jax.random.normal(jax.random.key(seed), shape) for seed, shape in enumerate((of_x, of_kernel)))

    def loss(multiply, x, kernel):
        return jnp.sin(multiply(x, kernel, dims(x, kernel, axes))).sum()

    ours = jax.value_and_grad(loss, argnums=(1, 2))(product.dot_general, x, kernel)
    twin = jax.value_and_grad(loss, argnums=(1, 2))(jax.lax.dot_general, x, kernel)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(twin), strict=True):
        assert one.shape == other.shape and jnp.allclose(one, other, rtol=1e-5, atol=1e-5)


def test_gradients_have_the_types_of_what_they_are_by():
    x, kernel = jnp.ones((3, 4), jnp.bfloat16), jnp.ones((4, 7), jnp.bfloat16)
    grads = jax.grad(lambda x, w: product.dot_general(x, w, dims(x, w, 1)).astype(jnp.float32).sum(), (0, 1))(x, kernel)
    assert {grad.dtype for grad in grads} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize(
    "numbers", [(((0,), (0,)), ((), ())), (((2,), (1,)), ((), ())), (((2,), (1,)), ((0,), (0,)))],
    ids=["first axis", "last of the kernel", "a batch"],
)  # fmt: skip
def test_other_products_are_refused(numbers):
    with pytest.raises(InputError, match="knows how to contract the last of the input with the first of the kernel"):
        product.dot_general(jnp.ones((4, 4, 4)), jnp.ones((4, 4, 4)), numbers)


def products(remat):
    """How many products with weights a gradient of a decoder's takes."""
    cfg = small.config()
    params = decoder.init(jax.random.key(0), cfg)
    kinds = {"token_id": jnp.zeros((1, 5), int), "position": jnp.arange(5)[None], "token_end": jnp.full((1, 5), 5)}
    apply = lambda params: decoder.apply(params, cfg, **kinds, attention="dense", remat=remat).sum()  # noqa: E731
    return str(jax.make_jaxpr(jax.grad(apply))(params)).count("dot_general")


@pytest.mark.parametrize("remat", decoder.REMAT)
def test_rematerialisation_computes_as_many_products_as_with_the_rule_of_jax(remat, monkeypatch):
    ours = products(remat)
    monkeypatch.setattr(product, "dot_general", jax.lax.dot_general)
    assert ours == products(remat)
