"""Estimators: from the rewards at the leaves to an advantage for every episode. Axes: N nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.credit import algebra
from rlsearch.errors import InputError, nearest
from rlsearch.tree import segments
from rlsearch.tree.forest import Nodes


@dataclass(frozen=True)
class CreditConfig:
    """Which estimator, and what it does with equal rewards."""

    estimator: str  # one of ESTIMATORS
    scale: bool  # divide by the group's standard deviation
    drop_equal: bool  # leave groups of equal rewards out of every denominator and do not compute them

    def __post_init__(self):
        if self.estimator not in ESTIMATORS:
            raise InputError(
                f"config.credit.estimator {self.estimator!r}: unknown{nearest(self.estimator, ESTIMATORS)}"
            )


Advantages = tuple[Float[Array, "N"], Bool[Array, "N"]]  # of each leaf, and the leaves that carry a signal


def grpo(nodes: Nodes, reward: Float[Array, "N"], scored: Bool[Array, "N"], *, scale: bool) -> Advantages:
    """Group-relative advantage: ``A_i = (r_i - mean(r)) / std(r)`` over the episodes of the question.

    DeepSeekMath, arXiv 2402.03300, section 4.1.2; the deviation is the population's. Without ``scale`` it is the
    advantage of Dr. GRPO, arXiv 2503.20783.
    """
    return algebra.normalise(reward, scored, nodes.question, scale=scale)


def tree_grpo(nodes: Nodes, reward: Float[Array, "N"], scored: Bool[Array, "N"], *, scale: bool) -> Advantages:
    """``A_i = A_intra + A_inter``: normalised among the episodes of its tree, plus among all trees of the question.

    Tree-GRPO, arXiv 2509.21240, section 3.3. The two levels are normalised apart and then added, so that neither
    cancels the other; a tree of equal rewards adds nothing within itself and still counts between trees.
    """
    inside, varies_inside = algebra.normalise(reward, scored, segments.tree_index(nodes.parent), scale=scale)
    across, varies_across = algebra.normalise(reward, scored, nodes.question, scale=scale)
    return inside + across, varies_inside | varies_across


ESTIMATORS: dict[str, Callable[..., Advantages]] = {"grpo": grpo, "tree_grpo": tree_grpo}


def estimate(nodes: Nodes, config: CreditConfig, *, weights: tuple[float, ...], reduction: Callable) -> algebra.Credit:
    """Advantages and loss weights of every node.

    Args:
      nodes: the whole batch's table.
      config: which estimator.
      weights: of the reward columns.
      reduction: a function of ``losses.reduce``: (tokens of each path, kept leaves) -> weight of each leaf's tokens.
    """
    reward, scored = algebra.total(nodes, weights)
    advantage, varies = ESTIMATORS[config.estimator](nodes, reward, scored, scale=config.scale)
    kept = varies if config.drop_equal else scored
    length = segments.path_sum(nodes.tokens.astype(jnp.float32), nodes.end)
    return algebra.spread(nodes, advantage, reduction(length, kept), kept)
