"""The product with weights, with a backward pass that a CPU computes without transposing the wide one of its factors.

JAX's own rule for the gradient by a kernel multiplies the cotangent, transposed, with the input. XLA on CPU fuses that
transposition with what the cotangent is computed by, such as the slope of a gated unit, and reads every array in it
against the grain. Here the narrower of input and cotangent is the one that is transposed. The sums are the same.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from rlsearch.errors import InputError

NAME = "product_with_weights"  # of results, by which a policy of rematerialisation knows them


def dot_general(x: Float[Array, "..."], kernel: Float[Array, "..."], dimension_numbers, precision=None):
    """``jax.lax.dot_general`` of the last axes of ``x`` with the first of ``kernel``, as ``nn.DenseGeneral`` calls it.

    Raises:
      InputError: other axes, or axes of a batch.
    """
    contracted, batch = dimension_numbers
    axes = len(contracted[0])
    own = (tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes)))
    if tuple(map(tuple, contracted)) != own or any(map(len, batch)):
        raise InputError(
            f"a product with weights contracts the axes {contracted} with batch axes {batch}; it knows how to contract"
            f" the last of the input with the first of the kernel, here {own}, without a batch"
        )
    return checkpoint_name(_product(x, kernel, axes, precision), NAME)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _product(x, kernel, axes: int, precision):
    return jnp.tensordot(x, kernel, axes=axes, precision=precision)


def _forward(x, kernel, axes: int, precision):
    return _product(x, kernel, axes, precision), (x, kernel)


def _backward(axes: int, precision, kept, cotangent):
    x, kernel = kept
    tokens = tuple(range(x.ndim - axes))
    made = tuple(range(len(tokens), cotangent.ndim))
    of_x = jnp.tensordot(cotangent, kernel, axes=(made, tuple(range(axes, kernel.ndim))), precision=precision)
    multiply = partial(jnp.tensordot, axes=(tokens, tokens), precision=precision)
    if math.prod(kernel.shape[:axes]) <= math.prod(kernel.shape[axes:]):
        return of_x, multiply(x, cotangent)
    return of_x, jnp.moveaxis(multiply(cotangent, x), tuple(range(len(made))), tuple(range(-len(made), 0)))


_product.defvjp(_forward, _backward)
