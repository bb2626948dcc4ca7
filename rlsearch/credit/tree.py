"""Estimators that read a tree: what an episode is worth among those that share a part of it.

Axes: N nodes, L paths, D depths.
"""

from __future__ import annotations

from rlsearch.credit import algebra
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.group import among
from rlsearch.credit.registry import estimator


@estimator("tree", outcome=True)
def tree_grpo(episodes: Episodes, *, scale: bool) -> Advantages:
    """``A_i = A_intra + A_inter``: normalised among the episodes of its tree, plus among all trees of the question.

    Tree-GRPO, arXiv 2509.21240, section 3.3. The two levels are normalised apart and then added, so that neither
    cancels the other; a tree of equal rewards adds nothing within itself and still counts between trees.
    """
    inside, varies_inside = among(episodes, episodes.tree, scale=scale)
    across, varies_across = among(episodes, episodes.question, scale=scale)
    return algebra.advantages(episodes, episodes.everywhere(inside + across), varies_inside | varies_across)
