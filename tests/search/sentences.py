"""Synthetic passages with the structure that retrieval lives on: entities, relations, bystanders."""

from __future__ import annotations

import random

from rlsearch.search.types import Passage

RELATIONS = ("mother", "employer", "birthplace", "mentor")
TEMPLATES = ("The {r} of {a} is {b}.", "{b} is the {r} of {a}.", "{a} speaks of {b}, a well known {r}.")
FILLER = (
    "Letters found in old archives near the harbour mention it, and so does {c}, who kept careful notes of the time."
)


def names(count: int, rng: random.Random) -> list[str]:
    found: set[str] = set()
    while len(found) < count:
        found.add("".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(4)).capitalize())
    return sorted(found)


def passages(*, people: int, seed: int) -> list[Passage]:
    """One passage per person and relation."""
    rng = random.Random(seed)
    people_names = names(people, rng)
    rows = []
    for person in people_names:
        for relation in RELATIONS:
            other, bystander = rng.sample([name for name in people_names if name != person], 2)
            fact = rng.choice(TEMPLATES).format(r=relation, a=person, b=other)
            rows.append(Passage(f"{person}/{relation}", person, f"{fact} {FILLER.format(c=bystander)}"))
    return rows


def questions(rows: tuple[Passage, ...]) -> list[str]:
    """For each passage the query that it answers."""
    return [" ".join(reversed(passage.id.split("/"))) for passage in rows]
