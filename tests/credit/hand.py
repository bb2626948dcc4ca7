"""Small tables written by hand: chains of turns with notes, and what an estimator makes of each turn."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import numpy as np
from ml_collections import ConfigDict

from rlsearch.config import Call
from rlsearch.credit import registry
from rlsearch.credit.algebra import Credit
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind, Nodes
from rlsearch.tree.pack import pad_nodes
from tests.credit.by_node import estimate


@dataclass
class Chain:
    """An episode: its question, its rewards, the notes of each of its turns, and how many tokens each has.

    ``leaf`` are notes of the whole episode, and stand at its last turn.
    """

    question: int
    rewards: float | Sequence[float]
    turns: Sequence[dict[str, float]] = ({},)
    tokens: Sequence[int] | None = None
    leaf: dict[str, float] = field(default_factory=dict)
    observed: dict[str, float] = field(default_factory=dict)  # notes of the observations between turns

    def branch(self, episode: int) -> Branch:
        below: list[Branch] = []
        tokens = self.tokens or [1] * len(self.turns)
        for turn in reversed(range(len(self.turns))):
            here = Branch(Kind.QUERY, turn, [1] * tokens[turn], [-1.0] * tokens[turn], below, notes=self.turns[turn])
            if not below:
                here.kind, here.episode, here.rewards = Kind.ANSWER, episode, np.atleast_1d(self.rewards).tolist()
                here.notes = {**here.notes, **self.leaf}
            below = [Branch(Kind.OBSERVATION, turn, [2, 2], children=[here], notes=self.observed)] if turn else [here]
        return Branch(Kind.PROMPT, 0, [0], children=below)


def chains(*episodes: Chain) -> Nodes:
    """One tree per episode, in this order."""
    terms = np.atleast_1d(episodes[0].rewards).size
    return build([(chain.question, chain.branch(i)) for i, chain in enumerate(episodes)], terms=terms).nodes


def outcomes(*episodes: tuple[int, float], **leaf: Sequence[float]) -> Nodes:
    """Episodes of one turn from (question, reward), with a note at the leaf of each."""
    notes = [{name: column[i] for name, column in leaf.items()} for i in range(len(episodes))]
    return chains(*[Chain(q, reward, leaf=note) for (q, reward), note in zip(episodes, notes, strict=True)])


@functools.partial(jax.jit, static_argnames=("config", "weights"))
def _estimate(nodes: Nodes, config: registry.CreditConfig, weights: tuple[float, ...]) -> Credit:
    return estimate(nodes, config, weights=weights, reduction=Call("token", REDUCTIONS["token"], ()))


def credit(nodes: Nodes, estimator: str, *, drop_equal: bool = False, weights: Sequence[float] = (1.0,), **options):
    """Of a table padded to one size, so that an estimator is compiled once; every number is checked to be finite."""
    config = registry.read(ConfigDict({"estimator": estimator, "drop_equal": drop_equal, **options}))
    padded = pad_nodes(nodes, 64, leaves=16, depth=8, fan=4)
    found = jax.tree.map(np.asarray, _estimate(padded, config, tuple(weights)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    return found


def turns(nodes: Nodes, column: np.ndarray) -> list[list[float]]:
    """A column ``[N, K]`` at the turns of each chain."""
    acts = (np.asarray(nodes.kind) != Kind.PROMPT) & (np.asarray(nodes.kind) != Kind.OBSERVATION)
    return [
        [float(column[node, 0]) for node in range(root, nodes.end[root]) if acts[node]]
        for root in np.flatnonzero(np.asarray(nodes.parent) < 0)
    ]


def advantages(nodes: Nodes, estimator: str, **options) -> list[list[float]]:
    """The advantage of each chain at each of its turns."""
    return turns(nodes, credit(nodes, estimator, **options).advantage.node)


def weights(nodes: Nodes, estimator: str, **options) -> list[list[float]]:
    """What a token weighs at each turn of each chain."""
    return turns(nodes, credit(nodes, estimator, **options).weight)


def ends(nodes: Nodes, estimator: str, **options) -> list[float]:
    """The advantage of each chain at its last turn."""
    return [row[-1] for row in advantages(nodes, estimator, **options)]
