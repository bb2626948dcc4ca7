"""Branches at places drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsearch.sampling.grow import Growth, Pick


@dataclass(frozen=True)
class RandomExpansion:
    """Tree-GRPO's rollouts (arXiv 2509.21240, section 3.2): ``trees`` chains a question, then ``rounds`` times
    ``branches`` new chains in every tree, each from a point drawn uniformly among the places where a turn began.
    """

    trees: int
    branches: int
    rounds: int
    cuts: ClassVar[int] = 0

    @property
    def leaves(self) -> int:
        return self.trees * self.leaves_of_tree

    @property
    def leaves_of_tree(self) -> int:
        return 1 + self.branches * self.rounds

    def choose(self, growth: Growth) -> list[Pick]:
        if growth.round == 0:
            return [Pick(tree, tree.points[0]) for tree in growth.trees]
        if growth.round > self.rounds:
            return []
        return [
            Pick(tree, tree.points[growth.rng.integers(len(tree.points))])
            for tree in growth.trees
            for _ in range(self.branches)
        ]
