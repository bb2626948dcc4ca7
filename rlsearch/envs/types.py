"""Environments are values: ``act`` returns a new state and changes none, so a fork is a reference kept."""

from __future__ import annotations

import enum
from collections.abc import Sequence
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

    ACT = "act"  # the policy writes a turn, as ``Env.ask`` says
    WAIT = "wait"  # ``State.calls`` wait for results
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
class Call:
    """Something asked of a tool; the tool "search" is the retriever of the question's corpus. At most ``k`` hits."""

    tool: str
    query: str
    k: int


@dataclass(frozen=True)
class Failure:
    """A call that brought nothing, and why, in words that the policy may read: "timed out after 10 s"."""

    reason: str


Result = Hits | Failure


@dataclass(frozen=True)
class Turn:
    """One finished turn: what the policy wrote and what was appended after it.

    Attributes:
      text: what the policy wrote, unchanged, with the opening that it was given.
      kind: "search", "answer", "invalid", or what else an environment knows.
      calls: what it asked of tools, in order.
      hit_ids: ids of the passages found, best first, one call after the other.
      failures: how many of its calls failed.
      observation: what is appended to the context after the turn; empty where nothing is.
      restart: where the context ends with this turn and a new one begins: what follows the question's prompt in it. An
        empty tuple is a new context too; None goes on in this one.
    """

    text: str
    kind: str
    calls: tuple[Call, ...] = ()
    hit_ids: tuple[str, ...] = ()
    failures: int = 0
    observation: tuple[Piece, ...] = ()
    restart: tuple[Piece, ...] | None = None

    @property
    def queries(self) -> tuple[str, ...]:
        """What was asked for."""
        return tuple(call.query for call in self.calls)

    @property
    def observation_text(self) -> str:
        """The observation as the model reads it, before any limit in tokens."""
        return "".join(piece.text for piece in self.observation)


@dataclass(frozen=True)
class State:
    """An episode so far. An environment that has to remember more has a subclass of it.

    Attributes:
      question: what is asked.
      status: who moves next.
      turns: those finished; the last one is where calls wait for their results.
      calls: what waits for results.
      answer: the final answer, None before there is one.
    """

    question: Question
    status: Status
    turns: tuple[Turn, ...] = ()
    calls: tuple[Call, ...] = ()
    answer: str | None = None

    @property
    def searches(self) -> int:
        """How many searches were answered; one asked for in the last turn, where only an answer counts, was not."""
        return sum(len(turn.calls) for turn in self.turns if turn.kind == "search" and turn.observation)


@dataclass(frozen=True)
class Ask:
    """How the policy writes its next turn.

    Attributes:
      role: who writes it, one of ``Env.roles``.
      stops: the strings that end it, one of ``Env.stops``.
      menu: where not empty, exactly one of these strings is written, and ``stops`` say nothing.
      opening: what the turn begins with: appended to the context, not sampled.
      tokens: how many it writes at most, fewer than the run allows; 0 where the run's own limit holds.
      ending: appended, not sampled, where the tokens ran out before a stop.
    """

    role: str
    stops: tuple[str, ...]
    menu: tuple[str, ...] = ()
    opening: str = ""
    tokens: int = 0
    ending: str = ""


class Env(Protocol):
    """A task. Every method is a function of its arguments, and changes none of them.

    ``stops`` are the sets of stop strings that a turn is ever asked with; ``roles`` who may write, the policy first;
    ``most_turns`` how many turns are written in an episode at most, and ``most_calls`` how many calls a turn may make.
    """

    stops: tuple[tuple[str, ...], ...]
    roles: tuple[str, ...]
    most_turns: int
    most_calls: int

    def start(self, question: Question) -> State: ...

    def ask(self, state: State) -> Ask: ...

    def act(self, state: State, text: str) -> State: ...

    def observe(self, state: State, results: Sequence[Result]) -> State: ...
