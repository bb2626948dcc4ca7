"""The slow side of credit: a node table as lists and dictionaries, walked by loops and recursion in double precision.

An estimator's twin is a function ``(table, **options) -> Answer`` under the estimator's name, registered by ``twin``.
It is written from the paper's own formula for one path at a time, in time linear in the paths, since the benchmark of
credit runs it on large tables too.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rlsearch.tree.forest import NONE, Nodes

Values = dict[int, float]  # by leaf


@dataclass
class Answer:
    """What a twin finds.

    Attributes:
      advantage: by (leaf, node), for every node on the path to a leaf; what is left out is 0.
      varies: leaves that carry a signal.
      masked: (leaf, node) whose tokens take no part.
    """

    advantage: dict[tuple[int, int], float]
    varies: set[int]
    masked: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class Table:
    """A node table in plain Python. An episode of several leaves has one vote, at the first."""

    nodes: Nodes
    weights: tuple[float, ...]

    def __post_init__(self):
        for name in ("end", "parent", "kind", "turn", "question", "episode", "tokens"):
            setattr(self, name, np.asarray(getattr(self.nodes, name)).tolist())
        self.rewards = np.asarray(self.nodes.rewards).tolist()
        self.notes = {name: np.asarray(column).tolist() for name, column in self.nodes.notes.items()}

    @cached_property
    def leaves(self) -> list[int]:
        return [node for node, episode in enumerate(self.episode) if episode != NONE]

    @cached_property
    def votes(self) -> list[int]:
        """The first leaf of each episode that could be scored."""
        first = {}
        for leaf in self.leaves:
            first.setdefault(self.episode[leaf], leaf)
        return [leaf for leaf in first.values() if leaf in self.totals]

    @cached_property
    def totals(self) -> Values:
        """The weighted reward of every leaf that can be scored."""
        found = {}
        for leaf in self.leaves:
            terms = [(reward, w) for reward, w in zip(self.rewards[leaf], self.weights, strict=True) if w]
            if not any(math.isnan(reward) for reward, _ in terms):
                found[leaf] = sum(reward * weight for reward, weight in terms)
        return found

    @cached_property
    def paths(self) -> dict[int, list[int]]:
        """Nodes from the root to each leaf."""
        found = {}
        for leaf in self.leaves:
            path, node = [], leaf
            while node != NONE:
                path.append(node)
                node = self.parent[node]
            found[leaf] = path[::-1]
        return found

    @cached_property
    def below(self) -> dict[int, list[int]]:
        """Leaves at or below each node."""
        found = defaultdict(list)
        for leaf, path in self.paths.items():
            for node in path:
                found[node].append(leaf)
        return found

    def root(self, leaf: int) -> int:
        return self.paths[leaf][0]

    def everywhere(self, values: Values) -> dict[tuple[int, int], float]:
        """A value of each episode at every node of its path."""
        return {(leaf, node): value for leaf, value in values.items() for node in self.paths[leaf]}


def grouped(members: Iterable[int], key: Callable[[int], Hashable]) -> dict[Hashable, list[int]]:
    found = defaultdict(list)
    for member in members:
        found[key(member)].append(member)
    return found


def relative(table: Table, values: Values, group: Callable[[int], Hashable], *, scale: bool) -> tuple[Values, set[int]]:
    """Each leaf's value against the votes of its group, and the leaves in groups that vary."""
    result, varying = {}, set()
    members = grouped([leaf for leaf in table.votes if leaf in values], group)
    for leaf, value in values.items():
        peers = [values[other] for other in members[group(leaf)]]
        result[leaf] = 0.0
        if len(peers) > 1 and max(peers) > min(peers):
            varying.add(leaf)
            result[leaf] = (value - statistics.fmean(peers)) / (statistics.pstdev(peers) if scale else 1.0)
    return result, varying


TWINS: dict[str, Callable[..., Answer]] = {}
OPTIONS: dict[str, list[dict]] = {}


def twin(*options: dict) -> Callable:
    """Registers the twin of the estimator of the same name, with the options that properties are tested at."""

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        TWINS[function.__name__] = function
        OPTIONS[function.__name__] = list(options)
        return function

    return register


def leaf_weights(table: Table, part: set[tuple[int, int]], reduction: str) -> dict[tuple[int, int], float]:
    """What one token weighs at each (leaf, node) that takes part; an episode without tokens is in no denominator."""
    length, nodes = defaultdict(int), defaultdict(int)
    for leaf, node in part:
        length[table.episode[leaf]] += table.tokens[node]
        nodes[table.episode[leaf]] += 1
    all_tokens, found = sum(length.values()), {}  # once: the benchmark runs this on large tables
    for leaf, node in part:
        episode = table.episode[leaf]
        if reduction == "token":
            found[leaf, node] = 1 / all_tokens
        elif reduction == "sequence":
            found[leaf, node] = 1 / (len(length) * length[episode])
        else:
            found[leaf, node] = 1 / (len(length) * nodes[episode] * table.tokens[node])
    return found
