"""Operations over the node table that estimators are composed of. Axes: N nodes, R reward terms.

An episode that cannot be scored, a group of one and a group of equal rewards have a defined answer everywhere:
advantage zero, and no part in any denominator.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlsearch.tree import segments
from rlsearch.tree.forest import Nodes, leaves


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Credit:
    """What every node's tokens are worth, summed over the episodes below it.

    Clipping is not linear in the advantage, so that the positive and the negative advantages of the episodes that share
    a token are summed apart. All three carry the reduction's weight of each episode.

    Attributes:
      positive: sum over the episodes below of weight x max(advantage, 0).
      negative: sum over the episodes below of weight x min(advantage, 0).
      weight: sum over the episodes below of weight, for terms without an advantage (KL, entropy).
      advantage: of each episode, at its leaf, before weighting; 0 elsewhere. For reports.
      kept: leaves that take part.
    """

    positive: Float[Array, "N"]
    negative: Float[Array, "N"]
    weight: Float[Array, "N"]
    advantage: Float[Array, "N"]
    kept: Bool[Array, "N"]


def total(nodes: Nodes, weights: tuple[float, ...]) -> tuple[Float[Array, "N"], Bool[Array, "N"]]:
    """The weighted sum of the reward terms, and which leaves could be scored in every term of non-zero weight."""
    weight = jnp.asarray(weights, jnp.float32)[None]
    unscored = jnp.isnan(nodes.rewards)
    scored = leaves(nodes) & ~(unscored & (weight != 0)).any(axis=1)
    # No matmul: it may round rewards to bfloat16, and equal rows to different sums.
    terms = jnp.where(unscored, 0.0, nodes.rewards) * weight
    return jnp.where(scored, terms.sum(axis=1), 0.0), scored


def normalise(
    x: Float[Array, "N"], use: Bool[Array, "N"], segment: Int[Array, "N"], *, scale: bool
) -> tuple[Float[Array, "N"], Bool[Array, "N"]]:
    """x minus its mean over ``use`` in its segment, divided by the population standard deviation where ``scale``.

    Returns the result, 0 outside ``use`` and in segments where x is constant, and whether x varies in each segment.
    """
    mean, deviation, constant = segments.moments(x, use, segment)
    varies = use & ~constant
    centred = jnp.where(varies, x - mean, 0.0)
    return (centred / jnp.where(varies, deviation, 1.0) if scale else centred), varies


def spread(nodes: Nodes, advantage: Float[Array, "N"], weight: Float[Array, "N"], kept: Bool[Array, "N"]) -> Credit:
    """Carries the advantage and the reduction's weight of each leaf up its path."""
    weight = jnp.where(kept, weight, 0.0)
    return Credit(
        positive=segments.subtree_sum(weight * jnp.maximum(advantage, 0.0), nodes.end),
        negative=segments.subtree_sum(weight * jnp.minimum(advantage, 0.0), nodes.end),
        weight=segments.subtree_sum(weight, nodes.end),
        advantage=jnp.where(kept, advantage, 0.0),
        kept=kept,
    )
