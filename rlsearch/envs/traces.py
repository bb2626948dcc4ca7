"""Demonstrations for the warm-up: they show the form of an episode, not how many searches a question needs.

A trace searches a random number of times, whatever the hops of its question, sometimes asks for the wrong relation, and
answers with the last thing it found. So the warm-up teaches how to ask, to copy and to answer, and leaves it to
reinforcement learning to find out when to go on searching.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlsearch.envs.types import Question
from rlsearch.envs.worlds import World, ask, draw_chain
from rlsearch.errors import InputError
from rlsearch.search.types import Hits


@dataclass(frozen=True)
class TracesConfig:
    """How noisy the demonstrations are."""

    searches: tuple  # probability of 1, 2, 3, ... searches in a trace
    wrong_relation: float  # probability that a search asks for another relation than the question's next one

    def __post_init__(self):
        if not np.isclose(sum(self.searches), 1.0):
            raise InputError(f"config.traces.searches sums to {sum(self.searches)}; probabilities must sum to 1")


@dataclass(frozen=True)
class Trace:
    """A demonstration: turns of the policy, and the hits that each search is answered with (none after the answer)."""

    question: Question
    turns: tuple[tuple[str, Hits | None], ...]


def draw_trace(config: TracesConfig, world: World, rng: np.random.Generator, *, hops: int) -> Trace:
    """A random demonstration about a random question of ``hops`` hops."""
    chain = draw_chain(world, rng, hops=hops)
    here, turns = chain.entity, []
    for step in range(1 + rng.choice(len(config.searches), p=config.searches)):
        relation = _relation(config, world, rng, here, chain.relations[step] if step < hops else None)
        passage = world.passages[world.passage_of[here, relation]]
        turns.append((search_turn(relation, here), Hits((passage,), (1.0,))))
        here = world.facts[here][relation]
    turns.append((f"<answer> {here}</answer>", None))
    return Trace(ask(world, chain, number=-1), tuple(turns))


def search_turn(relation: str, entity: str) -> str:
    """How a demonstration asks for a relation of an entity."""
    return f"<search> {relation} {entity}</search>"


def _relation(config: TracesConfig, world: World, rng: np.random.Generator, here: str, wanted: str | None) -> str:
    known = list(world.facts[here])
    if wanted in known and rng.random() >= config.wrong_relation:
        return wanted
    others = [relation for relation in known if relation != wanted]
    return others[rng.integers(len(others))]
