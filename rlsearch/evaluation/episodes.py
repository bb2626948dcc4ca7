"""Finished episodes as JSON lines, so that an evaluation that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlsearch.config import differing
from rlsearch.envs.types import Call, Piece, Question, State, Status, Turn
from rlsearch.errors import InputError

FILE = "episodes.jsonl"


def to_row(state: State) -> dict[str, Any]:
    """What JSON keeps of an episode: the fields of ``State``, on which metrics depend alone.

    What a subclass of an environment's own adds is left out: it serves to go on with an episode, and this one is over.
    """
    row = {name: getattr(state, name) for name in ("question", "turns", "calls")}
    kept = asdict(State(status=state.status, answer=state.answer, **row))
    return kept | {"status": state.status.value}


def from_row(row: dict[str, Any]) -> State:
    """The ``State`` that ``to_row`` made a row of."""
    return State(
        question=Question(**row["question"] | _tuples(row["question"], "answers", "supporting_ids")),
        status=Status(row["status"]),
        turns=tuple(map(_turn, row["turns"])),
        calls=_calls(row["calls"]),
        answer=row["answer"],
    )


def _turn(row: dict[str, Any]) -> Turn:
    return Turn(
        **row
        | _tuples(row, "hit_ids")
        | {
            "calls": _calls(row["calls"]),
            "observation": _pieces(row["observation"]),
            "restart": None if row["restart"] is None else _pieces(row["restart"]),
        }
    )


def _calls(rows: Sequence[dict[str, Any]]) -> tuple[Call, ...]:
    return tuple(Call(**row) for row in rows)


def _pieces(rows: Sequence[dict[str, Any]]) -> tuple[Piece, ...]:
    return tuple(Piece(**row) for row in rows)


def _tuples(row: dict[str, Any], *names: str) -> dict[str, tuple]:
    return {name: tuple(row[name]) for name in names}


@dataclass(frozen=True)
class Episodes:
    """The finished episodes of one evaluation in ``file``: a line that says what they are of, then one an episode.

    They lie in the order of the questions, and ``at_once`` of them are added together. A group that was not added
    whole is asked again whole: an episode may depend on its company by rounding, and goes on in the same one.
    """

    file: Path
    of: dict[str, Any]
    questions: Sequence[Question]
    at_once: int

    def read(self) -> list[State]:
        """The episodes that are there; makes the file where there is none, and says on stderr what it drops.

        Raises:
          InputError: the episodes are of something else (what differs is named), or the file is damaged before its end.
        """
        data = self.file.read_bytes() if self.file.exists() else b""
        lines = data.split(b"\n")
        torn = lines.pop()
        if not lines:
            return self._begin(torn)
        self._check(lines[0])
        if len(lines) - 1 > len(self.questions):
            raise InputError(
                f"{self.file}:{len(self.questions) + 2}: an episode more than the {len(self.questions)} questions;"
                f" delete this line and those below it to go on"
            )
        states = [self._state(*numbered) for numbered in enumerate(lines[1:], 2)]
        whole = len(states) if len(states) == len(self.questions) else len(states) // self.at_once * self.at_once
        self._drop(torn, len(states) - whole, length=sum(len(line) + 1 for line in lines[: whole + 1]))
        if whole:
            self._say(f"{whole} of {len(self.questions)} questions are answered already")
        return states[:whole]

    def append(self, states: Sequence[State]) -> list[State]:
        """Adds a group, on the disk when this returns; returns the episodes as ``read`` would."""
        lines = [json.dumps(to_row(state)) for state in states]
        self._write("".join(line + "\n" for line in lines).encode())
        return [from_row(json.loads(line)) for line in lines]

    @property
    def _head(self) -> bytes:
        return json.dumps({"of": self.of}).encode() + b"\n"

    def _begin(self, torn: bytes) -> list[State]:
        if not self._head.startswith(torn):
            raise InputError(self._foreign)
        self._drop(torn, 0, length=0)
        self._write(self._head)
        return []

    def _check(self, line: bytes) -> None:
        try:
            of = json.loads(line)["of"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(self._foreign) from error
        if keys := differing(of, self.of):
            raise InputError(
                f"{self.file}: holds the episodes of another evaluation; they differ in {', '.join(keys)}. Use another"
                f" --workdir, or what that evaluation was started with; delete the file to evaluate anew here"
            )

    @property
    def _foreign(self) -> str:
        return (
            f"{self.file}:1: does not say what evaluation the episodes are of; delete the file to evaluate anew, or"
            f" use another --workdir"
        )

    def _state(self, number: int, line: bytes) -> State:
        """The episode on a line."""
        where, remedy = f"{self.file}:{number}", "delete this line and those below it to go on"
        try:
            state = from_row(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{where}: no episode ({type(error).__name__}: {error}); {remedy}") from error
        due = self.questions[number - 2]
        if state.question != due:
            raise InputError(f"{where}: an episode of question {state.question.id} where {due.id} belongs; {remedy}")
        return state

    def _drop(self, torn: bytes, episodes: int, *, length: int) -> None:
        """Cuts the file off behind ``length`` bytes and says what that loses."""
        lost = [f"{episodes} of the {self.at_once} episodes of a group that was not finished"] if episodes else []
        lost += [f"a last line that was cut off after {len(torn)} bytes"] if torn else []
        if lost:
            self._say(f"dropped {' and '.join(lost)}; what was lost is done again")
            os.truncate(self.file, length)

    def _write(self, data: bytes) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _say(self, text: str) -> None:
        print(f"{self.file}: {text}", file=sys.stderr, flush=True)
