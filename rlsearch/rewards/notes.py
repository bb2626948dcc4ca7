"""What estimators read of a turn, an episode or a question besides the reward: columns of notes in the node table.

A config pairs a column that an estimator reads with a writer: ``config.notes = (("step_reward", "new_evidence"),)``. So
several writers may be tried for one column. What a writer cannot know (no supporting passages are known) is 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlsearch.envs.types import State
from rlsearch.errors import InputError, nearest
from rlsearch.rewards import answers
from rlsearch.sampling.trees import Tree
from rlsearch.tree.build import Branch
from rlsearch.tree.forest import Kind

ACTS = (Kind.QUERY, Kind.ANSWER, Kind.INVALID, Kind.STEP)


def evidence(state: State, turn: int) -> float:
    """Share of the question's supporting passages found up to and with this turn."""
    wanted = set(state.question.supporting_ids)
    found = {hit for earlier in state.turns[: turn + 1] for hit in earlier.hit_ids}
    return len(wanted & found) / len(wanted) if wanted else 0.0


def new_evidence(state: State, turn: int) -> float:
    """What this turn adds to ``evidence``."""
    return evidence(state, turn) - (evidence(state, turn - 1) if turn else 0.0)


def repetition(state: State, turn: int) -> float:
    """Share of this turn's hits that earlier turns had found."""
    hits = set(state.turns[turn].hit_ids)
    earlier = {hit for before in state.turns[:turn] for hit in before.hit_ids}
    return len(hits & earlier) / len(hits) if hits else 0.0


def gain_less_repetition(state: State, turn: int) -> float:
    """StepSearch's step reward (arXiv 2505.15107), with supporting passages for information: gain minus repetition."""
    return new_evidence(state, turn) - repetition(state, turn)


def answer_seen(state: State, turn: int) -> float:
    """1 once a golden answer has stood in what the policy was given to read."""
    read = "".join(earlier.observation_text for earlier in state.turns[: turn + 1])
    return answers.cover_match(read, golds=state.question.answers)


def invalid(state: State, turn: int) -> float:
    """1 where the turn is no valid action."""
    return float(state.turns[turn].kind == "invalid")


def valid(state: State, turn: int) -> float:
    """1 where the turn is a valid action."""
    return 1.0 - invalid(state, turn)


def found_nothing(state: State, turn: int) -> float:
    """1 where a search that was made found no passage."""
    here = state.turns[turn]
    return float(here.kind == "search" and bool(here.observation) and not here.hit_ids)


def found_no_evidence(state: State, turn: int) -> float:
    """1 where a search was made and found no supporting passage that was not known before."""
    here = state.turns[turn]
    return float(here.kind == "search" and bool(here.observation) and new_evidence(state, turn) == 0.0)


def found_evidence(state: State, turn: int) -> float:
    """How many supporting passages the turn found."""
    return float(len(set(state.turns[turn].hit_ids) & set(state.question.supporting_ids)))


def number(state: State, turn: int) -> float:
    """Which turn it is, from 0."""
    return float(turn)


def query_number(state: State, turn: int) -> float:
    """A number that turns with the same kind and, but for case and blanks, the same queries share; below 2**24."""
    here = state.turns[turn]
    words = "\n".join(" ".join(query.lower().split()) for query in here.queries)
    return float(zlib.crc32(f"{here.kind}\n{words}".encode()) % 2**24)


def answers_now(state: State, turn: int) -> float:
    """1 where the turn is an answer."""
    return float(state.turns[turn].kind == "answer")


def searches(state: State) -> float:
    """Searches that were answered."""
    return float(state.searches)


def answered(state: State) -> float:
    """1 where the episode ended in an answer."""
    return float(state.answer is not None)


def attempt(state: State) -> float:
    """Number of the attempt; every rollout is the first."""
    return 0.0


def nothing(state: State) -> float:
    """0: for a column that is read and that no episode of this run has anything to say in."""
    return 0.0


def hops(state: State) -> float:
    """Passages that the question needs; 0 where unknown."""
    return float(state.question.hops)


TURNS: Mapping[str, Callable[[State, int], float]] = {
    writer.__name__: writer
    for writer in (
        evidence, new_evidence, repetition, gain_less_repetition, answer_seen, invalid, valid, found_nothing,
        found_no_evidence, found_evidence, number, query_number, answers_now,
    )
}  # fmt: skip
"""Written at every turn of the policy: a function of the episode up to that turn, so that branches agree on it."""

EPISODES: Mapping[str, Callable[[State], float]] = {
    writer.__name__: writer for writer in (searches, answered, hops, attempt, nothing)
}
"""Written where an episode ends."""

PERSISTENT = "persistent_value"
"""Written where an episode ends: the question's value from earlier steps, which the training loop keeps."""


LIKELIHOOD = "answer_likelihood"
"""Written before the first turn, at the root, and at every turn: what ``config.scorer`` says after the turn and what it
brought back. A turn that ends the episode brings nothing back, and has what was said before it."""


@dataclass(frozen=True)
class Notes:
    """Which writer fills which column."""

    columns: tuple[tuple[str, str], ...]

    def __post_init__(self):
        known = [*TURNS, *EPISODES, PERSISTENT, LIKELIHOOD]
        for pair in self.columns:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise InputError(f"config.notes: {pair!r} is no (column, writer) pair")
            if pair[1] not in known:
                raise InputError(f"config.notes: {pair[1]!r} writes {pair[0]!r}: unknown{nearest(pair[1], known)}")
        if len({column for column, _ in self.columns}) < len(self.columns):
            raise InputError(f"config.notes: a column is written twice in {self.columns!r}; keep one writer for each")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(column for column, _ in self.columns)

    @property
    def persistent(self) -> bool:
        """Whether a column holds values of questions from earlier steps."""
        return any(writer == PERSISTENT for _, writer in self.columns)

    @property
    def scored(self) -> bool:
        """Whether a column holds what a scorer says."""
        return any(writer == LIKELIHOOD for _, writer in self.columns)

    def write(self, trees: Sequence[Tree], values: Sequence[float], scored: Mapping[int, float]) -> None:
        """Writes the notes of every node.

        Args:
          trees: of the questions.
          values: the persistent values of the questions by index.
          scored: what a scorer says after prompts and observations, by the id of the branch, where there is one.
        """
        for tree in trees:
            for episode in tree.episodes:
                whole = episode.nodes
                for column, writer in self.columns:
                    if writer in TURNS:
                        for branch in _turns(whole):
                            branch.notes[column] = TURNS[writer](episode.state, branch.turn)
                    elif writer in EPISODES:
                        episode.leaf.notes[column] = EPISODES[writer](episode.state)
                    elif writer == LIKELIHOOD:
                        _write_scored(column, whole, scored)
                    else:
                        episode.leaf.notes[column] = values[tree.question]

    def said(self, trees: Sequence[Tree]) -> dict[str, float]:
        """Of each column that a scorer writes, the mean before the first turns and that where episodes end."""
        ends = [(tree.root, episode.leaf) for tree in trees for episode in tree.episodes]
        found = {}
        for column in (column for column, writer in self.columns if writer == LIKELIHOOD):
            found[f"{column}_first"] = sum(root.notes[column] for root, _ in ends) / len(ends)
            found[f"{column}_last"] = sum(leaf.notes[column] for _, leaf in ends) / len(ends)
        return found


def _turns(path: Sequence[Branch]) -> list[Branch]:
    """The node in which each turn of a path ends."""
    return list({branch.turn: branch for branch in path if branch.kind in ACTS}.values())


def _write_scored(column: str, path: Sequence[Branch], scored: Mapping[int, float]) -> None:
    """Writes what a scorer says along a path that begins with the prompt."""
    newest = path[0].notes[column] = scored[id(path[0])]
    ends, waiting = {id(branch) for branch in _turns(path)}, None
    for branch in path[1:]:
        if id(branch) in scored:
            newest = scored[id(branch)]
        elif id(branch) in ends:
            waiting = branch
        if waiting is not None:
            waiting.notes[column] = newest
