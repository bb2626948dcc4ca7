"""Building forests from branches on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlsearch.tree.forest import NONE, Forest, Kind, Nodes


@dataclass
class Branch:
    """A node under construction: its tokens and the branches that continue it.

    ``logps`` holds the behaviour log-probabilities of a sampled node, and is None where the policy wrote nothing.
    ``rewards`` and ``episode`` are set where an episode ends.
    """

    kind: Kind
    turn: int
    tokens: Sequence[int]
    logps: Sequence[float] | None = None
    children: list[Branch] = field(default_factory=list)
    episode: int = NONE
    rewards: Sequence[float] = ()
    version: int = 0
    role: int = 0


def build(trees: Sequence[tuple[int, Branch]], *, terms: int) -> Forest:
    """Flattens trees, each with the index of its question, into one forest with ``terms`` reward columns.

    Raises:
      ValueError: a sampled node whose log-probabilities do not match its tokens, or a leaf without an episode.
    """
    flat = _Flat(terms)
    for question, root in trees:
        flat.add(root, question=question, parent=NONE, prev=NONE, position=0)
    return flat.forest()


class _Flat:
    """Columns of tokens and nodes, filled in depth-first order."""

    def __init__(self, terms: int):
        self.terms = terms
        self.tokens: list[list] = []
        self.nodes: list[list] = []
        self.rewards: list[Sequence[float]] = []

    def add(self, root: Branch, *, question: int, parent: int, prev: int, position: int) -> None:
        index, first = len(self.nodes), len(self.tokens)
        self._check(root, index)
        self.nodes.append(
            [0, parent, root.kind, root.turn, question, root.episode, root.role, root.version]
            + [len(root.tokens) if root.logps is not None else 0]
        )
        self.rewards.append(root.rewards if len(root.rewards) else [0.0] * self.terms)
        logps = root.logps if root.logps is not None else [0.0] * len(root.tokens)
        for token, logp in zip(root.tokens, logps, strict=True):
            self.tokens.append([token, index, position, prev, 0, root.logps is not None, logp])
            prev, position = len(self.tokens) - 1, position + 1
        for child in root.children:
            self.add(child, question=question, parent=index, prev=prev, position=position)
        self.nodes[index][0] = len(self.nodes)
        for token in range(first, first + len(root.tokens)):
            self.tokens[token][4] = len(self.tokens)

    def _check(self, branch: Branch, index: int) -> None:
        if branch.logps is not None and len(branch.logps) != len(branch.tokens):
            raise ValueError(
                f"node {index}: {len(branch.tokens)} sampled tokens with {len(branch.logps)} log-probabilities"
            )
        if (not branch.children) != (branch.episode != NONE):
            raise ValueError(f"node {index}: a leaf needs an episode and an inner node must have none")
        if len(branch.rewards) not in (0, self.terms):
            raise ValueError(f"node {index}: {len(branch.rewards)} rewards, the forest has {self.terms} terms")

    def forest(self) -> Forest:
        columns = list(zip(*self.tokens, strict=True)) or [()] * 7
        table = [np.asarray(column, np.int32) for column in list(zip(*self.nodes, strict=True)) or [()] * 9]
        rewards = np.asarray(self.rewards, np.float32).reshape(len(self.nodes), self.terms)
        return Forest(
            *[np.asarray(column, np.int32) for column in columns[:5]],
            sampled=np.asarray(columns[5], bool),
            behavior_logp=np.asarray(columns[6], np.float32),
            nodes=Nodes(*table, rewards=rewards),
        )
