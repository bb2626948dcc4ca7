"""Estimators that compare an episode's reward with a group: its question, its tree, a stratum, the batch.

Axes: L paths, D depths. All deviations are the population's unless said otherwise.
"""

from __future__ import annotations

from jaxtyping import Array, Bool, Float, Int

from rlsearch.credit import algebra
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.registry import estimator


def among(episodes: Episodes, group: Int[Array, "L"], *, scale: bool) -> tuple[Float[Array, "L"], Bool[Array, "L"]]:
    """Each episode's reward relative to the scored episodes with the same id in ``group``, and whether those differ."""
    return algebra.relative(episodes.reward, episodes.vote, group, episodes.nodes.end.shape[0], scale=scale)


@estimator("group", outcome=True)
def grpo(episodes: Episodes, *, scale: bool) -> Advantages:
    """Group-relative advantage: ``A_i = (r_i - mean(r)) / std(r)`` over the episodes of the question.

    DeepSeekMath, arXiv 2402.03300, section 4.1.2; the deviation is the population's. Without ``scale`` it is the
    advantage of Dr. GRPO, arXiv 2503.20783.
    """
    value, varies = among(episodes, episodes.question, scale=scale)
    return algebra.advantages(episodes, episodes.everywhere(value), varies)
