"""Levels of the importance ratio: over what log-probabilities are averaged before they are compared.

Each is a function of the targets and the batch that gives log-ratios [..., K], or [..., 1] where all episodes through a
token agree. Averages over more than a token need the whole batch's targets (``LEVELS[name].whole``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.losses.targets import Batch, Targets


@dataclass(frozen=True)
class Level:
    """A level, and whether it reads more than the target itself."""

    function: Callable[[Targets, Batch], Float[Array, "... K"]]
    whole: bool


def token(targets: Targets, batch: Batch) -> Float[Array, "... 1"]:
    """``log pi(t) - log pi_old(t)`` (PPO, arXiv 1707.06347)."""
    return (targets.logp - targets.old_logp)[..., None]


def node(targets: Targets, batch: Batch) -> Float[Array, "... 1"]:
    """Mean over the tokens of the node: the same for every episode that shares it."""
    total = batch.node_sum(targets.logp - targets.old_logp, targets)
    count = batch.node_sum(jnp.ones_like(targets.logp), targets)
    return (total / jnp.maximum(count, 1.0))[targets.node][..., None]


def turn(targets: Targets, batch: Batch) -> Float[Array, "... K"]:
    """Mean over the tokens of the turn on each path (AT2PO, arXiv 2601.04767): several nodes where a turn branches."""
    total = batch.along(batch.node_sum(targets.logp - targets.old_logp, targets))
    number = batch.episodes.turn
    same = number[:, :, None] == number[:, None, :]
    inside = (same * batch.tokens[:, None, :]).sum(axis=2)
    return batch.at((same * total[:, None, :]).sum(axis=2) / jnp.maximum(inside, 1.0), targets.node)


def sequence(targets: Targets, batch: Batch) -> Float[Array, "... K"]:
    """Mean over the tokens of the episode (GSPO, arXiv 2507.18071, equation 7): the ratio's geometric mean."""
    total = batch.episodes.over_episode(batch.along(batch.node_sum(targets.logp - targets.old_logp, targets)))
    return batch.at(total / jnp.maximum(batch.episodes.over_episode(batch.tokens), 1.0), targets.node)


def sequence_token(targets: Targets, batch: Batch) -> Float[Array, "... K"]:
    """The value of ``sequence`` with the gradient of ``token`` (GSPO-token, arXiv 2507.18071, equation 14)."""
    own = token(targets, batch)
    return jax.lax.stop_gradient(sequence(targets, batch)) + own - jax.lax.stop_gradient(own)


LEVELS = {
    "token": Level(token, whole=False),
    "node": Level(node, whole=True),
    "turn": Level(turn, whole=True),
    "sequence": Level(sequence, whole=True),
    "sequence_token": Level(sequence_token, whole=True),
}
