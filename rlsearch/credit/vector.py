"""Estimators that keep the terms of the reward apart until they are advantages.

Axes: L paths, R reward terms, S subsets of the terms.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float, Int

from rlsearch.credit import algebra
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.registry import estimator
from rlsearch.credit.strata import refuse_penalty
from rlsearch.errors import InputError
from rlsearch.tree import segments
from rlsearch.tree.segments import Groups

MOST = 8  # terms: there is a covariance for every subset of them


def quantile(x: Float[Array, "L"], use: Bool[Array, "L"], groups: Groups) -> Float[Array, "L"]:
    """Share of the group's values below x, those equal to it counted half; strictly between 0 and 1 where in use."""
    group = groups.index
    order = jnp.lexsort((x, group))
    new = (x[order][1:] != x[order][:-1]) | (group[order][1:] != group[order][:-1])
    rank = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(new.astype(jnp.int32))])
    place = jnp.zeros_like(group).at[order].set(rank)
    equal = jax.ops.segment_sum(use.astype(jnp.int32), place, place.shape[0])
    below = (jnp.cumsum(equal) - equal)[place]
    start = jax.ops.segment_min(below, group, groups.count)[group]
    total = segments.total(jnp.ones_like(x), use, groups)
    return (below - start + 0.5 * equal[place]) / jnp.maximum(total, 1.0)


def whitening(scores: Float[Array, "L R"], use: Bool[Array, "L"], kind: Int[Array, "L"], shrinkage: float) -> Array:
    """Inverse square root of the second moments of the scores of each kind, ``[S, R, R]``, on the space they span."""
    kinds = 2 ** scores.shape[1]
    outer = jnp.where(use[:, None, None], scores[:, :, None] * scores[:, None, :], 0.0)
    count = jnp.maximum(jax.ops.segment_sum(use.astype(jnp.float32), kind, kinds), 1.0)
    moments = jax.ops.segment_sum(outer, kind, kinds) / count[:, None, None]
    moments = (1.0 - shrinkage) * moments + shrinkage * jnp.eye(scores.shape[1])[None]
    size, axes = jnp.linalg.eigh(moments)
    spans = size > 1e-5 * jnp.maximum(size[:, -1:], 0.0)
    root = jnp.where(spans, jnp.sqrt(1.0 / jnp.where(spans, size, 1.0)), 0.0)
    return jnp.einsum("sij,sj,skj->sik", axes, root, axes, precision="highest")


@estimator("vector")
def quantile_whitened(episodes: Episodes, *, magnitude: float, shrinkage: float) -> Advantages:
    """``A_i = sum_j w_j (C^-1/2 z_i)_j``: every term normalised in its question, correlations whitened, then summed.

    RDPO, arXiv 2605.13641: magnitude-aware quantile normalisation, then Mahalanobis whitening in each active subspace.
    Only its abstract could be read, so the details are chosen here. ``z_ij`` is ``magnitude`` times the z-score
    of the term plus ``1 - magnitude`` times its normal score: the normal quantile of the share of the question's
    values below it (ties count half), brought to mean 0 and deviation 1. For a term of two values both are the
    advantage of GRPO. A term is active in a question where it varies and has a weight; questions with the same active
    terms share ``C``, the second moments of z over their episodes in the batch, ``(1 - shrinkage) C + shrinkage I``.
    Without shrinkage, directions in which C vanishes are left out: one reward given twice weighs sqrt(2), not 2.
    """
    refuse_penalty(episodes, "quantile_whitened")
    if len(episodes.weights) > MOST:
        raise InputError(f"quantile_whitened: {len(episodes.weights)} reward terms, and there may be {MOST}")
    vote, groups = episodes.vote, episodes.by_question
    columns, active = [], []
    for j, weight in enumerate(episodes.weights):
        term = jnp.where(jnp.isnan(episodes.terms[:, j]) | (weight == 0), 0.0, episodes.terms[:, j])
        linear, varies = algebra.relative(term, vote, groups, scale=True)
        normal = ndtri(jnp.where(episodes.scored, quantile(term, vote, groups), 0.5))
        ranked, _ = algebra.relative(normal, vote, groups, scale=True)
        columns.append(magnitude * linear + (1.0 - magnitude) * jnp.where(varies, ranked, 0.0))
        active.append(varies)
    scores, varies = jnp.stack(columns, axis=1), jnp.stack(active, axis=1)
    kind = (varies * (2 ** jnp.arange(len(active)))[None]).sum(axis=1)
    whiten = whitening(scores, vote, kind, shrinkage)
    mix = (jnp.asarray(episodes.weights, jnp.float32)[None, :, None] * whiten).sum(axis=1)
    return algebra.advantages(episodes, episodes.everywhere((scores * mix[kind]).sum(axis=1)), varies.any(axis=1))
