"""A critic: the decoder's trunk under a head of one number, which says what the state after each token is worth."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlsearch.models import decoder
from rlsearch.models.decoder import DecoderConfig, Params


def from_policy(params: Params) -> Params:
    """A critic whose trunk is the policy's and whose head is zero, so that it starts by saying 0 everywhere."""
    embedding = params["embed"]["embedding"]
    trunk = {name: params[name] for name in ("embed", "blocks", "final_norm")}
    width, dtype = embedding.shape[1], embedding.dtype
    return {**trunk, "value": {"kernel": jnp.zeros((width,), dtype), "bias": jnp.zeros((1,), dtype)}}


def apply(
    params: Params,
    cfg: DecoderConfig,
    *,
    token_id: Int[Array, "B T"],
    position: Int[Array, "B T"],
    token_end: Int[Array, "B T"],
    remat: str | bool,
    attention: str,
) -> Float[Array, "B T"]:
    """Values after each token of packed rows, in float32; see ``decoder.apply`` for the arguments."""
    hidden = decoder.apply(
        params, cfg, token_id=token_id, position=position, token_end=token_end, remat=remat, attention=attention
    ).astype(jnp.float32)
    head = params["value"]
    return hidden @ head["kernel"].astype(jnp.float32) + head["bias"].astype(jnp.float32)[0]
