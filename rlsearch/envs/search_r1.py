"""Question answering with a search tool, in the protocol of Search-R1 (arXiv 2503.09516).

An episode has at most ``max_turns`` turns in which the policy may search or answer, and one last turn in which only an
answer counts. A search is answered with an information block; a turn without a valid action is answered with a fixed
sentence and is used up; an answer ends the episode. So at most ``max_turns`` searches are answered, and the policy
writes at most ``max_turns + 1`` turns. Search-R1 itself has ``max_turns=4`` and three hits; where a project counts n
turns with at most n - 1 searches, ``max_turns`` is n - 1. A search in the last turn is recorded but not answered: the
episode then ends without an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlsearch.envs import actions, observations
from rlsearch.envs.types import Question, State, Status, Turn
from rlsearch.errors import InputError, nearest
from rlsearch.search.types import Hits


@dataclass(frozen=True)
class SearchEnvConfig:
    """Settings of the task.

    Attributes:
      max_turns: turns before the last one, at least 0; each may hold one search.
      hits: passages shown for a search, at least 1.
      style: how observations are written, one of ``observations.STYLES``.
    """

    max_turns: int
    hits: int
    style: str

    def __post_init__(self):
        if self.max_turns < 0:
            raise InputError(f"env.max_turns is {self.max_turns}; needs 0 or more turns before the answer turn")
        if self.hits < 1:
            raise InputError(f"env.hits is {self.hits}; needs at least 1 passage for a search")
        if self.style not in observations.STYLES:
            raise InputError(f"env.style is {self.style!r}{nearest(self.style, observations.STYLES)}")


@dataclass(frozen=True)
class SearchEnv:
    """The task as an ``Env``. It holds no state: every method is a function of its arguments."""

    config: SearchEnvConfig
    stop_tags = ("</search>", "</answer>")

    @property
    def most_turns(self) -> int:
        """Turns that the policy writes at most, the last one included."""
        return self.config.max_turns + 1

    def start(self, question: Question) -> State:
        """The state before the first turn."""
        return State(question=question, status=Status.ACT, turns=(), query=None, answer=None)

    def act(self, state: State, text: str) -> State:
        """Takes the policy's turn; see ``actions.parse`` for how it is read.

        Args:
          state: one in which the policy acts.
          text: all that the policy wrote this turn, the closing tag included where there is one.

        Raises:
          ValueError: the state waits for hits or is done.
        """
        if state.status is not Status.ACT:
            raise ValueError(f"act on question {state.question.id}: the state is {state.status.value}, not act")
        action = actions.parse(text)
        last = len(state.turns) == self.config.max_turns
        query = action.content if action.kind == "search" else None
        shown = () if last or action.kind != "invalid" else observations.invalid(style=self.config.style)
        turns = (*state.turns, Turn(text=text, kind=action.kind, query=query, hit_ids=(), observation=shown))
        if action.kind == "answer":
            return replace(state, status=Status.DONE, turns=turns, answer=action.content)
        if last:
            return replace(state, status=Status.DONE, turns=turns)
        if action.kind == "search":
            return replace(state, status=Status.SEARCH, turns=turns, query=query)
        return replace(state, turns=turns)

    def observe(self, state: State, hits: Hits) -> State:
        """Answers the search that ``state`` waits for; no hits make an empty information block.

        Raises:
          ValueError: the state waits for no search, or there are more hits than the task shows.
        """
        if state.status is not Status.SEARCH:
            raise ValueError(f"observe on question {state.question.id}: the state is {state.status.value}, not search")
        if len(hits.passages) > self.config.hits:
            raise ValueError(f"{len(hits.passages)} hits for {state.query!r}; ask the retriever for {self.config.hits}")
        turn = replace(
            state.turns[-1],
            hit_ids=tuple(passage.id for passage in hits.passages),
            observation=observations.render(hits, style=self.config.style),
        )
        return replace(state, status=Status.ACT, turns=(*state.turns[:-1], turn), query=None)
