"""Question answering with a search tool, in the protocol of Search-R1 (arXiv 2503.09516).

An episode has at most ``max_turns`` turns in which the policy may search or answer, and one last turn in which only an
answer counts. A search is answered with an information block; a turn without a valid action is answered with a fixed
sentence and is used up; an answer ends the episode. So at most ``max_turns`` searches are answered, and the policy
writes at most ``max_turns + 1`` turns. Search-R1 itself has ``max_turns=4`` and three hits; where a project counts n
turns with at most n - 1 searches, ``max_turns`` is n - 1. A search in the last turn is recorded but not answered: the
episode then ends without an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlsearch.envs import actions, observations
from rlsearch.envs.types import Ask, Call, Failure, Question, Result, State, Status, Turn
from rlsearch.errors import InputError, nearest


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
    stops = (("</search>", "</answer>"),)
    roles = ("policy",)
    most_calls = 1

    @property
    def most_turns(self) -> int:
        """Turns that the policy writes at most, the last one included."""
        return self.config.max_turns + 1

    def start(self, question: Question) -> State:
        """The state before the first turn."""
        return State(question, Status.ACT)

    def ask(self, state: State) -> Ask:
        """Every turn is written in the same way."""
        return Ask(self.roles[0], self.stops[0])

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
        calls = (Call("search", action.content, self.config.hits),) if action.kind == "search" else ()
        shown = () if last or action.kind != "invalid" else observations.invalid(style=self.config.style)
        turns = (*state.turns, Turn(text, action.kind, calls, observation=shown))
        if action.kind == "answer":
            return replace(state, status=Status.DONE, turns=turns, answer=action.content)
        if last:
            return replace(state, status=Status.DONE, turns=turns)
        if calls:
            return replace(state, status=Status.WAIT, turns=turns, calls=calls)
        return replace(state, turns=turns)

    def observe(self, state: State, results: Sequence[Result]) -> State:
        """Answers the search that ``state`` waits for; no hits make an empty information block, a failure names itself.

        Raises:
          ValueError: the state waits for no search, or there are more hits than the task shows.
        """
        if state.status is not Status.WAIT:
            raise ValueError(f"observe on question {state.question.id}: the state is {state.status.value}, not wait")
        (found,) = results
        if isinstance(found, Failure):
            turn = replace(state.turns[-1], failures=1, observation=observations.failed(found, style=self.config.style))
        else:
            if len(found.passages) > self.config.hits:
                raise ValueError(
                    f"{len(found.passages)} hits for {state.calls[0].query!r}; the task shows {self.config.hits}"
                )
            turn = replace(
                state.turns[-1],
                hit_ids=tuple(passage.id for passage in found.passages),
                observation=observations.render(found, style=self.config.style),
            )
        return replace(state, status=Status.ACT, turns=(*state.turns[:-1], turn), calls=())
