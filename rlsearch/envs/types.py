"""Environments are values: ``act`` takes a state and returns a new one, so a rollout is forked by keeping a reference."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from rlsearch.search.types import Hits


@dataclass(frozen=True)
class Question:
    """A question with its golden answers.

    Attributes:
      id: unique over everything a run touches, such as ``hotpotqa/5a8c7595`` (it is the key of the group).
      text: what is asked.
      answers: the acceptable answers, at least one.
      supporting_ids: ids of the passages that hold the evidence; empty where unknown.
      hops: how many passages have to be read; 0 where unknown.
      corpus: the name of the corpus that its searches go to.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    supporting_ids: tuple[str, ...]
    hops: int
    corpus: str


class Status(enum.Enum):
    """Who moves next."""

    ACT = "act"  # the policy writes a turn
    SEARCH = "search"  # ``State.query`` waits for hits
    DONE = "done"


@dataclass(frozen=True)
class Turn:
    """One finished turn: what the policy wrote and what was appended after it."""

    text: str
    kind: str  # "search", "answer" or "invalid"
    query: str | None
    hit_ids: tuple[str, ...]
    observation: str  # "" where nothing is appended


@dataclass(frozen=True)
class State:
    """An episode so far."""

    question: Question
    status: Status
    turns: tuple[Turn, ...]
    query: str | None
    answer: str | None


class Env(Protocol):
    """A task. ``stop_tags`` are the strings that end a turn of the policy."""

    stop_tags: tuple[str, ...]

    def start(self, question: Question) -> State: ...

    def act(self, state: State, text: str) -> State: ...

    def observe(self, state: State, hits: Hits) -> State: ...
