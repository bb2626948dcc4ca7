"""Environments are values: ``act`` returns a new state and changes none, so a fork is a reference kept."""

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
class Piece:
    """A stretch of an observation. Joined, the pieces are the text that the model reads.

    A trusted piece is the program's own (tags, fixed sentences) and goes through ``Tokenizer.encode_control``; any
    other comes from a corpus or a tool, is already escaped, and goes through ``Tokenizer.encode``.
    """

    text: str
    trusted: bool


@dataclass(frozen=True)
class Turn:
    """One finished turn: what the policy wrote and what was appended after it.

    Attributes:
      text: what the policy wrote, unchanged.
      kind: "search", "answer" or "invalid".
      query: what was searched for; None unless ``kind`` is "search".
      hit_ids: ids of the passages found, best first.
      observation: what is appended to the context after the turn; empty where nothing is.
    """

    text: str
    kind: str
    query: str | None
    hit_ids: tuple[str, ...]
    observation: tuple[Piece, ...]

    @property
    def observation_text(self) -> str:
        """The observation as the model reads it, before any limit in tokens."""
        return "".join(piece.text for piece in self.observation)


@dataclass(frozen=True)
class State:
    """An episode so far."""

    question: Question
    status: Status
    turns: tuple[Turn, ...]
    query: str | None
    answer: str | None

    @property
    def searches(self) -> int:
        """How many searches were answered; one asked for in the last turn, where only an answer counts, was not."""
        return sum(turn.kind == "search" and bool(turn.observation) for turn in self.turns)


class Env(Protocol):
    """A task. ``stop_tags`` are the strings that end a turn of the policy; it writes ``most_turns`` of them at most."""

    stop_tags: tuple[str, ...]
    most_turns: int

    def start(self, question: Question) -> State: ...

    def act(self, state: State, text: str) -> State: ...

    def observe(self, state: State, hits: Hits) -> State: ...
