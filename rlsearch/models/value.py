"""A head of one number on the decoder's trunk: a critic, which says what the state after each token is worth.

Its trunk is its own, or the policy's (``TRUNKS``); a head alone is the parameters ``{"value": {"kernel", "bias"}}``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.models.decoder import Params

TRUNKS = ("own", "shared", "stopped")
"""Whose states a critic reads: those of its own trunk, which starts as the policy's; those of the policy, whose trunk
its loss then trains too (PPO, arXiv 1707.06347, section 5); or those of the policy, which its loss leaves alone."""

TRUNK = ("embed", "blocks", "final_norm")


def start(params: Params, *, trunk: str) -> Params:
    """What a critic on one of TRUNKS begins with beside the policy ``params``; it says 0 everywhere."""
    return from_policy(params) if trunk == "own" else {"value": zero_head(params)}


def from_policy(params: Params) -> Params:
    """A critic whose trunk is the policy's and whose head is zero, so that it starts by saying 0 everywhere."""
    return {**{name: params[name] for name in TRUNK}, "value": zero_head(params)}


def zero_head(params: Params) -> Params:
    """A head of zeros for the trunk of ``params``."""
    embedding = params["embed"]["embedding"]
    width, dtype = embedding.shape[1], embedding.dtype
    return {"kernel": jnp.zeros((width,), dtype), "bias": jnp.zeros((1,), dtype)}


def whole(critic: Params, policy: Params) -> Params:
    """A critic with a trunk: its own, or the policy's where it has none."""
    return critic if "embed" in critic else {**{name: policy[name] for name in TRUNK}, **critic}


def head(params: Params, hidden: Float[Array, "... E"]) -> Float[Array, "..."]:
    """Values of the states that ``decoder.apply`` ends with, in float32."""
    kernel, bias = (params["value"][name].astype(jnp.float32) for name in ("kernel", "bias"))
    return hidden.astype(jnp.float32) @ kernel + bias[0]


def on_states(params: Params, hidden: Float[Array, "... E"], *, trunk: str) -> Float[Array, "..."]:
    """``head`` on states of the policy; under "stopped" no gradient goes into them."""
    return head(params, jax.lax.stop_gradient(hidden) if trunk == "stopped" else hidden)
