"""From a node table to the credit of its tokens, inside the jitted step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp

from rlsearch.credit import batch, critic, group, potential, redistribute, route, strata, tree, turn, vector  # noqa: F401
from rlsearch.credit.algebra import Credit, Episodes, Track
from rlsearch.credit.registry import CreditConfig
from rlsearch.credit.slots import Slots, node_sum
from rlsearch.tree.forest import Nodes


def estimate(
    nodes: Nodes,
    config: CreditConfig,
    *,
    weights: tuple[float, ...],
    reduction: Callable,
    slots: Slots | None = None,
) -> Credit:
    """Advantages and loss weights of every node for every episode through it.

    Args:
      nodes: the whole batch's table.
      config: which estimator.
      weights: of the reward columns.
      reduction: a function of ``losses.reduce``: (tokens of each node on each path, its episode, its turn) -> weight
        of each of these tokens.
      slots: the batch's sampled tokens, where credit needs a critic's values or a KL penalty.
    """
    penalty = None
    if slots is not None and slots.penalty is not None:
        penalty = node_sum(slots.penalty, slots, nodes.end.shape[0])
    episodes = Episodes(nodes, weights, slots, penalty)
    found = config.estimator(episodes)
    kept = episodes.scored & found.varies if config.drop_equal else episodes.scored
    part = kept[:, None] & episodes.acts & found.use
    weight = reduction(jnp.where(part, episodes.tokens, 0.0), episodes.episode, episodes.turn)
    n = nodes.end.shape[0]

    def counting(track: Track | None) -> Track | None:
        return track and replace(track, node=jnp.where(part, track.node, 0.0))

    return Credit(
        advantage=counting(found.advantage),
        returns=counting(found.returns),
        weight=jnp.where(part, weight, 0.0),
        part=part,
        kept=jnp.zeros(n, bool).at[jnp.where(kept, episodes.leaf, n)].set(True, mode="drop"),
    )
