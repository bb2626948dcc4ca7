"""A critic: the decoder's trunk under a head of one number, which says what the state after each token is worth."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.models.decoder import Params


def from_policy(params: Params) -> Params:
    """A critic whose trunk is the policy's and whose head is zero, so that it starts by saying 0 everywhere."""
    embedding = params["embed"]["embedding"]
    trunk = {name: params[name] for name in ("embed", "blocks", "final_norm")}
    width, dtype = embedding.shape[1], embedding.dtype
    return {**trunk, "value": {"kernel": jnp.zeros((width,), dtype), "bias": jnp.zeros((1,), dtype)}}


def head(params: Params, hidden: Float[Array, "... E"]) -> Float[Array, "..."]:
    """Values of the states that ``decoder.apply`` ends with, in float32."""
    kernel, bias = (params["value"][name].astype(jnp.float32) for name in ("kernel", "bias"))
    return hidden.astype(jnp.float32) @ kernel + bias[0]
