"""Synthetic worlds: small closed corpora of made-up facts, with questions that take one to three searches.

A world is persons, cities, countries and companies tied by nine relations. Every fact is one passage. A question chains
relations ("What is the mayor of the birthplace of Karlon?"), so that it is answered by as many searches as it has hops,
each about what the last one found. Names are drawn anew for each world from a shared pool: nothing can be learned by
heart, and worlds never seen in training measure whether the policy learned to search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlsearch.envs.types import Question
from rlsearch.errors import InputError
from rlsearch.search.types import Passage


@dataclass(frozen=True)
class WorldsConfig:
    """How many worlds there are and how large each is."""

    training: int  # worlds that the policy trains on
    heldout: int  # worlds that only evaluation sees
    names: int  # the pool that every world draws its names from
    persons: int
    cities: int
    countries: int
    companies: int
    hops: tuple  # how many hops questions have; each equally often

    def __post_init__(self):
        entities = self.persons + self.cities + self.countries + self.companies
        if self.persons <= max(self.hops) or min(self.cities, self.countries, self.companies) < 1:
            raise InputError(
                f"config.worlds: {self.persons} persons, {self.cities} cities, {self.countries} countries,"
                f" {self.companies} companies; needs one of each and more persons than a question has hops"
            )
        if self.names < entities:
            raise InputError(f"config.worlds.names is {self.names}, but a world holds {entities} entities; raise it")
        if self.names > len(STARTS) * len(ENDS):
            raise InputError(f"config.worlds.names is {self.names}; there are {len(STARTS) * len(ENDS)} names at most")


# relation: (kind of the subject, kind of the value)
RELATIONS = {
    "birthplace": ("person", "city"),
    "employer": ("person", "company"),
    "mentor": ("person", "person"),
    "mayor": ("city", "person"),
    "country": ("city", "country"),
    "founder": ("company", "person"),
    "headquarters": ("company", "city"),
    "capital": ("country", "city"),
    "president": ("country", "person"),
}
TEMPLATES = {
    "birthplace": (
        "The birthplace of {e} is {v}.",
        "{e} left {v}, a quiet birthplace, early.",
        "In {v} stands the birthplace of {e}.",
    ),
    "employer": (
        "The employer of {e} is {v}.",
        "{v} is the employer that pays {e}.",
        "For {e} the only employer was {v}.",
    ),
    "mentor": (
        "The mentor of {e} is {v}.",
        "{v} was the mentor who taught {e}.",
        "{e} thanks {v}, a patient mentor.",
    ),
    "mayor": (
        "The mayor of {e} is {v}.",
        "{v} serves as mayor in {e}.",
        "{e} chose {v} as its mayor.",
    ),
    "country": (
        "The country of {e} is {v}.",
        "{e} lies in {v}, a cold country.",
        "{v} is the country around {e}.",
    ),
    "founder": (
        "The founder of {e} is {v}.",
        "{v} is the founder who built {e}.",
        "{e} was begun by {v}, its founder.",
    ),
    "headquarters": (
        "The headquarters of {e} is {v}.",
        "{e} keeps its headquarters in {v}.",
        "{v} holds the headquarters of {e}.",
    ),
    "capital": (
        "The capital of {e} is {v}.",
        "{v} is the capital that rules {e}.",
        "{e} made {v} its capital.",
    ),
    "president": (
        "The president of {e} is {v}.",
        "{v} was sworn in as president of {e}.",
        "{e} elected {v} as president.",
    ),
}
ASIDES = (
    "Reports from {d} agree.",
    "Travellers to {d} tell of it.",
    "It was also known to {d}.",
    "Few letters mention {d}.",
)
STARTS = tuple(c + v + e for c in "BDFKLMNRSTVZ" for v in "aeo" for e in "rl")
ENDS = tuple(c + v + e for c in "bdgkmntv" for v in "aeiou" for e in "ns")


@dataclass(frozen=True)
class World:
    """One closed corpus.

    Attributes:
      name: the corpus name of its questions.
      kinds: entity to kind.
      facts: ``facts[entity][relation]`` is the value.
      passage_of: ``passage_of[entity, relation]`` is the row of the passage that states it.
      passages: the corpus.
    """

    name: str
    kinds: dict[str, str]
    facts: dict[str, dict[str, str]]
    passage_of: dict[tuple[str, str], int]
    passages: tuple[Passage, ...]


def name_pool(config: WorldsConfig, *, seed: int) -> list[str]:
    """The names of a run, without repeats."""
    every = [start + end for start in STARTS for end in ENDS]
    order = np.random.default_rng([seed, 0]).permutation(len(every))
    return [every[i] for i in order[: config.names]]


def make_world(config: WorldsConfig, *, seed: int, index: int, split: str) -> World:
    """World ``index`` of a split ("train" or "heldout"); a function of its arguments alone."""
    rng = np.random.default_rng([seed, 1, ("train", "heldout").index(split), index])
    pool = rng.permutation(name_pool(config, seed=seed))
    counts = {"person": config.persons, "city": config.cities, "country": config.countries, "company": config.companies}
    kinds, members, at = {}, {}, 0
    for kind, count in counts.items():
        members[kind] = [str(name) for name in pool[at : at + count]]
        kinds.update(dict.fromkeys(members[kind], kind))
        at += count
    facts: dict[str, dict[str, str]] = {entity: {} for entity in kinds}
    for relation, (subject, value) in RELATIONS.items():
        for entity in members[subject]:
            others = [name for name in members[value] if name != entity]
            facts[entity][relation] = others[rng.integers(len(others))]
    name = f"{split}_{index:03d}"
    pairs = [(entity, relation) for entity in facts for relation in facts[entity]]
    passages = tuple(
        Passage(id=f"{name}/{row}", title=entity, text=_passage(rng, entity, relation, facts[entity][relation], pool))
        for row, (entity, relation) in enumerate(pairs)
    )
    return World(name, kinds, facts, {pair: row for row, pair in enumerate(pairs)}, passages)


def _passage(rng: np.random.Generator, entity: str, relation: str, value: str, pool: np.ndarray) -> str:
    fact = TEMPLATES[relation][rng.integers(len(TEMPLATES[relation]))].format(e=entity, v=value)
    aside = ASIDES[rng.integers(len(ASIDES))].format(d=pool[rng.integers(len(pool))])
    return f"{fact} {aside}" if rng.random() < 0.5 else f"{aside} {fact}"


@dataclass(frozen=True)
class Chain:
    """The way from an entity to the answer: ``relations`` are in the order in which they are searched."""

    entity: str
    relations: tuple[str, ...]
    values: tuple[str, ...]


def draw_chain(world: World, rng: np.random.Generator, *, hops: int) -> Chain:
    """A random chain that meets no entity twice."""
    entities = list(world.kinds)
    while True:
        here = start = entities[rng.integers(len(entities))]
        relations, values = [], []
        for _ in range(hops):
            known = list(world.facts[here])
            relations.append(known[rng.integers(len(known))])
            here = world.facts[here][relations[-1]]
            values.append(here)
        if len({start, *values}) == hops + 1:
            return Chain(start, tuple(relations), tuple(values))


def ask(world: World, chain: Chain, *, number: int) -> Question:
    """The question whose answer is the end of ``chain``."""
    path = " of the ".join(reversed(chain.relations))
    seen = (chain.entity, *chain.values)
    support = [world.passage_of[pair] for pair in zip(seen, chain.relations, strict=False)]
    return Question(
        id=f"{world.name}/q{number}",
        text=f"What is the {path} of {chain.entity}?",
        answers=(chain.values[-1],),
        supporting_ids=tuple(world.passages[row].id for row in support),
        hops=len(chain.relations),
        corpus=world.name,
    )


def draw_questions(config: WorldsConfig, world: World, *, seed: int, count: int) -> list[Question]:
    """``count`` questions about a world, hops in turn; a function of its arguments alone."""
    rng = np.random.default_rng([seed, 2, *world.name.encode()])
    hops = [config.hops[i % len(config.hops)] for i in range(count)]
    return [ask(world, draw_chain(world, rng, hops=h), number=i) for i, h in enumerate(hops)]
