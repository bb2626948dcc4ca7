"""What an episode earned: named terms, one column each, never summed before credit.

A term that cannot be scored is NaN, and credit leaves that episode out of the column. Flags say in words why an episode
earned nothing, so that a zero for a wrong answer and a zero for no answer can be told apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlsearch.envs.types import State, Status
from rlsearch.errors import InputError, nearest
from rlsearch.rewards import answers, format

NO_ANSWER = "no final answer"
UNSCORABLE = "unscorable"


def _exact_match(state: State) -> float:
    return answers.exact_match(state.answer, golds=state.question.answers)


def _cover_match(state: State) -> float:
    return answers.cover_match(state.answer, golds=state.question.answers)


def _f1(state: State) -> float:
    return answers.f1(state.answer, golds=state.question.answers)


def _answered(state: State) -> float:
    return float(state.answer is not None)


def _valid(state: State) -> float:
    """Share of turns that hold a valid action; NaN where the episode was ended before its first turn."""
    turns = state.turns
    return sum(turn.kind != "invalid" for turn in turns) / len(turns) if turns else math.nan


def _searches(state: State) -> float:
    return float(state.searches)


def _format(state: State) -> float:
    return float(format.well_formed(state, think=False))


def _format_think(state: State) -> float:
    return float(format.well_formed(state, think=True))


def _search_r1_format(state: State) -> float:
    return format.search_r1_format(state, correct=_exact_match(state) == 1.0, think=True)


def recall(state: State) -> float:
    """Share of the question's supporting passages among all hits; NaN where they are not known."""
    wanted = set(state.question.supporting_ids)
    found = {hit for turn in state.turns for hit in turn.hit_ids}
    return len(wanted & found) / len(wanted) if wanted else math.nan


TERMS: Mapping[str, Callable[[State], float]] = {
    "exact_match": _exact_match,
    "cover_match": _cover_match,
    "f1": _f1,
    "answered": _answered,
    "valid": _valid,
    "searches": _searches,
    "format": _format,
    "format_think": _format_think,
    "search_r1_format": _search_r1_format,
    "recall": recall,
}
"""Every term, each a pure function of a finished episode."""


@dataclass(frozen=True)
class Score:
    """One value a term, unweighted, NaN where it could not be scored; and flags such as ``no final answer``."""

    columns: dict[str, float]
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Reward:
    """A reward as data: ``terms`` lists (name, weight); the order is that of the reward columns."""

    terms: tuple[tuple[str, float], ...]

    def __post_init__(self):
        if not self.terms:
            raise InputError(f"reward.terms is empty; list (name, weight) pairs; known: {', '.join(sorted(TERMS))}")
        for name, weight in self.terms:
            if name not in TERMS:
                raise InputError(f"reward.terms: unknown term {name!r}{nearest(name, TERMS)}")
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
                raise InputError(f"reward.terms: weight of {name!r} is {weight!r}; needs a finite number")
        if len(set(self.names)) < len(self.names):
            raise InputError(
                f"reward.terms: a term is listed twice in {', '.join(self.names)}; keep one, with its weight"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(name for name, _ in self.terms)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each column, which credit applies."""
        return tuple(float(weight) for _, weight in self.terms)

    def score(self, state: State) -> Score:
        """Scores a finished episode.

        Raises:
          ValueError: the episode is not done, so that a reward for its last message would be a guess.
        """
        if state.status is not Status.DONE:
            raise ValueError(
                f"question {state.question.id}: the episode is not done ({state.status.value}); score it then"
            )
        columns = {name: TERMS[name](state) for name in self.names}
        unscorable = tuple(f"{UNSCORABLE}: {name}" for name, value in columns.items() if math.isnan(value))
        return Score(columns, (() if state.answer is not None else (NO_ANSWER,)) + unscorable)

    def total(self, score: Score) -> float:
        """The weighted sum, for logs; NaN where a column with a weight other than 0 is."""
        return sum(
            weight * score.columns[name] for name, weight in zip(self.names, self.weights, strict=True) if weight
        )
