"""What terms that treat an episode as a whole are composed of: its likelihood, its outcome, its share of the weights.

Axes: N nodes, L paths, K paths through a node, ... any shape of targets. An episode of several contexts has several
paths; what is said of it stands at each of them, and its first path stands for it where episodes are counted.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.errors import InputError
from rlsearch.losses.targets import Batch, Targets
from rlsearch.tree import segments


def total(x: Float[Array, "..."], targets: Targets, batch: Batch) -> Float[Array, "L"]:
    """Sum of x over the tokens of each path's episode. ``targets`` must be the whole batch's."""
    return batch.episodes.over_episode(batch.along(batch.node_sum(x, targets)))


def counted(batch: Batch) -> Bool[Array, "L"]:
    """The first path of every episode that has a token which counts."""
    first = batch.episodes.episode == jnp.arange(batch.episodes.episode.shape[0])
    return first & (batch.episodes.over_episode(batch.tokens) > 0)


def noted(batch: Batch, name: str) -> Float[Array, "L"]:
    """A note that is said of each path's episode: at the leaf of its first path.

    Raises:
      InputError: the table has no such column.
    """
    if name not in batch.episodes.nodes.notes:
        known = ", ".join(sorted(batch.episodes.nodes.notes)) or "none"
        raise InputError(f"config.loss.terms: note {name!r} is read and nothing writes it (there: {known})")
    return batch.episodes.note(name)[batch.episodes.leaf][batch.episodes.episode]


def in_question(x: Float[Array, "L"], use: Bool[Array, "L"], batch: Batch) -> Float[Array, "L"]:
    """Sum of x over the paths in use of each path's question."""
    return segments.total(x, use, batch.episodes.by_question)


def over_question(use: Bool[Array, "L"], batch: Batch) -> Float[Array, "L"]:
    """How many paths of each path's question are in use."""
    return in_question(jnp.ones(use.shape, jnp.float32), use, batch)


def weighted_mean(
    x: Float[Array, "... K"], of: Float[Array, "L"], pick: Bool[Array, "L"], targets: Targets, batch: Batch
) -> Float[Array, ""]:
    """Mean of ``of x`` over the tokens of picked episodes, weighed as the reduction does; 0 where none is picked.

    The weights are made to sum to one over what is picked, so that it does not matter how much of the batch that is:
    with reduction "token" it is the mean over those tokens, with "sequence" that over those episodes of the mean over
    their tokens. The sum is fixed by credit, so that parts of a batch's targets give parts of the result.
    """
    whole = jnp.where(pick[:, None], batch.credit.weight * batch.episodes.tokens, 0.0).sum()
    value = targets.weight * jnp.where(batch.at(pick, targets.node), batch.at(of, targets.node) * x, 0.0)
    return value.sum() / jnp.where(whole > 0, whole, 1.0)
