"""Reductions: how much a token of each node weighs in the loss, on each path through it.

They are fixed by the whole batch, so that neither packing nor accumulation can change it. Each is a function of
``tokens`` (those of each node on each path that count; 0 for all others), ``episode`` (index of each path's episode;
the contexts of one episode share its weight) and ``turn``. Axes: L paths, D depths.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlsearch.errors import InputError


def token(tokens: Float[Array, "L D"], episode: Int[Array, "L"], turn: Int[Array, "L D"]) -> Float[Array, "L D"]:
    """Every token of the batch weighs the same (DAPO, arXiv 2503.14476, equation 8): 1 / sum of lengths."""
    return jnp.broadcast_to(1.0 / jnp.maximum(tokens.sum(), 1.0), tokens.shape)


def sequence(tokens: Float[Array, "L D"], episode: Int[Array, "L"], turn: Int[Array, "L D"]) -> Float[Array, "L D"]:
    """Every episode weighs the same, and its tokens share that (GRPO, arXiv 2402.03300): 1 / (episodes x length).

    An episode without sampled tokens has nothing to share, and is not counted.
    """
    length = _length(tokens, episode)
    return jnp.broadcast_to((1.0 / (_episodes(length, episode) * jnp.maximum(length, 1.0)))[:, None], tokens.shape)


def constant(
    tokens: Float[Array, "L D"], episode: Int[Array, "L"], turn: Int[Array, "L D"], *, length: float
) -> Float[Array, "L D"]:
    """Every episode is divided by one length (Dr. GRPO, arXiv 2503.20783, section 3.2): 1 / (episodes x length)."""
    if length <= 0:
        raise InputError(f"reduction constant: length {length} must be above 0")
    return jnp.broadcast_to(1.0 / (_episodes(_length(tokens, episode), episode) * length), tokens.shape)


def node(tokens: Float[Array, "L D"], episode: Int[Array, "L"], turn: Int[Array, "L D"]) -> Float[Array, "L D"]:
    """Every episode weighs the same, its nodes share that, and their tokens theirs: 1 / (episodes x nodes x tokens)."""
    nodes = jax.ops.segment_sum((tokens > 0).sum(axis=1).astype(jnp.float32), episode, episode.shape[0])[episode]
    episodes = _episodes(_length(tokens, episode), episode)
    return 1.0 / (episodes * jnp.maximum(nodes, 1.0)[:, None] * jnp.maximum(tokens, 1.0))


def _length(tokens: Float[Array, "L D"], episode: Int[Array, "L"]) -> Float[Array, "L"]:
    """Tokens of each path's episode, over all its contexts."""
    return jax.ops.segment_sum(tokens.sum(axis=1), episode, episode.shape[0])[episode]


def _episodes(length: Float[Array, "L"], episode: Int[Array, "L"]) -> Float[Array, ""]:
    """Episodes with tokens; one that has several paths is counted at the first."""
    first = episode == jnp.arange(episode.shape[0])
    return jnp.maximum(((length > 0) & first).sum(), 1)


REDUCTIONS = {"token": token, "sequence": sequence, "constant": constant, "node": node}
