"""Where rollouts branch: each expander grows the trees of a batch of questions to their end."""

from __future__ import annotations

from dataclasses import dataclass

from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.sampling.grow import Expander, Grower


@dataclass(frozen=True)
class Group:
    """GRPO's group: one tree a question, whose root is the prompt and whose ``size`` branches never meet again."""

    size: int

    @property
    def leaves(self) -> int:
        return self.size

    @property
    def leaves_of_tree(self) -> int:
        return self.size

    def grow(self, grower: Grower, states, prompts, rng) -> None:
        trees = [grower.plant(i, state, prompt) for i, (state, prompt) in enumerate(zip(states, prompts, strict=True))]
        grower.read_prompts()
        grower.run([(tree, tree.points[0]) for tree in trees for _ in range(self.size)])


@dataclass(frozen=True)
class RandomExpansion:
    """Tree-GRPO's rollouts (arXiv 2509.21240, section 3.2): ``trees`` chains a question, then ``rounds`` times
    ``branches`` new chains in every tree, each from a point drawn uniformly among the places where a turn began.
    """

    trees: int
    branches: int
    rounds: int

    @property
    def leaves(self) -> int:
        return self.trees * self.leaves_of_tree

    @property
    def leaves_of_tree(self) -> int:
        return 1 + self.branches * self.rounds

    def grow(self, grower: Grower, states, prompts, rng) -> None:
        pairs = [(i, state, prompt) for i, (state, prompt) in enumerate(zip(states, prompts, strict=True))]
        trees = [grower.plant(*pair) for pair in pairs for _ in range(self.trees)]
        grower.read_prompts()
        grower.run([(tree, tree.points[0]) for tree in trees])
        for _ in range(self.rounds):
            grower.run([(t, t.points[rng.integers(len(t.points))]) for t in trees for _ in range(self.branches)])


EXPANDERS = {"group": Group, "random_expansion": RandomExpansion}


def make(section: ConfigDict) -> Expander:
    """The expander that ``config.expander`` describes.

    Raises:
      InputError: no such expander, or settings that it does not take.
    """
    return configs.read_kind(section, EXPANDERS, "config.expander")
