"""Independent chains: nothing but the prompt is shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsearch.sampling.grow import Growth, Pick


@dataclass(frozen=True)
class Group:
    """GRPO's group: one tree a question, whose root is the prompt and whose ``size`` branches never meet again."""

    size: int
    trees: ClassVar[int] = 1
    cuts: ClassVar[int] = 0

    @property
    def leaves(self) -> int:
        return self.size

    @property
    def leaves_of_tree(self) -> int:
        return self.size

    def choose(self, growth: Growth) -> list[Pick]:
        return [Pick(tree, tree.points[0], self.size) for tree in growth.trees] if growth.round == 0 else []
