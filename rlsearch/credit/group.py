"""Estimators that compare an episode's reward with a group: its question, its tree, a stratum, the batch.

Axes: L paths, D depths. All deviations are the population's unless said otherwise.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.credit import algebra
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.registry import estimator
from rlsearch.tree import segments
from rlsearch.tree.segments import Groups


def among(episodes: Episodes, groups: Groups, *, scale: bool) -> tuple[Float[Array, "L"], Bool[Array, "L"]]:
    """Each episode's reward relative to the scored episodes of its group, and whether those differ."""
    return algebra.relative(episodes.reward, episodes.vote, groups, scale=scale)


@estimator("group", outcome=True)
def grpo(episodes: Episodes, *, scale: bool) -> Advantages:
    """Group-relative advantage: ``A_i = (r_i - mean(r)) / std(r)`` over the episodes of the question.

    DeepSeekMath, arXiv 2402.03300, section 4.1.2; the deviation is the population's. Without ``scale`` it is the
    advantage of Dr. GRPO, arXiv 2503.20783.
    """
    value, varies = among(episodes, episodes.by_question, scale=scale)
    return algebra.advantages(episodes, episodes.everywhere(value), varies)


@estimator("group", outcome=True)
def rloo(episodes: Episodes) -> Advantages:
    """Leave-one-out: ``A_i = r_i - mean of the other episodes' rewards = n / (n - 1) x (r_i - mean(r))``.

    RLOO, arXiv 2402.14740, section 3. A group of one has no others, and is worth 0.
    """
    value, varies = among(episodes, episodes.by_question, scale=False)
    n = segments.total(jnp.ones_like(value), episodes.vote, episodes.by_question)
    return algebra.advantages(episodes, episodes.everywhere(value * n / jnp.maximum(n - 1.0, 1.0)), varies)


@estimator("group", notes=("attempt",), outcome=True)
def active_set(episodes: Episodes, *, scale: bool) -> Advantages:
    """``A_ik = r_ik - mean over every attempt at the question that was executed``, over their deviation with ``scale``.

    FC-SWE: a task that fails its verification is tried again with the failure in the context. Each attempt is an
    episode and keeps its own reward, and the baseline is that of the active set, whose size differs by task. Note
    ``attempt`` (at the leaf): number of the attempt, from 0; below 0 it was planned and never executed. Those have no
    vote, no advantage, and no token that takes part. Whether the paper divides by
    the deviation could not be read, so it is an option.
    """
    executed = episodes.note("attempt")[episodes.leaf] >= 0
    active = episodes.vote & executed
    value, varies = algebra.relative(episodes.reward, active, episodes.by_question, scale=scale)
    use = jnp.broadcast_to(executed[:, None], episodes.acts.shape)
    return algebra.advantages(episodes, episodes.everywhere(jnp.where(executed, value, 0.0)), varies & executed, use)
