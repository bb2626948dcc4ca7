"""The directory of a run: its config, its metrics, and what belongs where."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from rlsearch.config import differing
from rlsearch.errors import InputError

JOURNALS = ("metrics.jsonl", "evaluations.jsonl")


# What an evaluation leaves and a run may find: indexes say themselves which corpus and encoder they are of.
SHARED = {"indexes", "episodes.jsonl", "evaluation.json"}


@dataclass(frozen=True)
class Workdir:
    """Paths and journals of a run. Only the process with ``writes`` changes files."""

    path: Path
    writes: bool

    def open(self, config: ConfigDict) -> None:
        """Claims the directory for ``config``, or checks that it is that config's already.

        A run that failed before it made anything has no claim.

        Raises:
          InputError: it belongs to another config (the differing keys are named), or holds other files.
        """
        mine, file = json.loads(config.to_json_best_effort()), self.path / "config.json"
        if file.exists():
            theirs = _read_json(file)
            keys = differing(mine, theirs, "config")
            if keys and self._untouched():
                self.write_json("config.json", mine)
            elif keys:
                raise InputError(
                    f"{self.path}: belongs to a run of another config; they differ in {', '.join(keys)}."
                    f" Use another --workdir, or the config that the run was started with"
                )
            for name in JOURNALS:
                self._mend(name)
            return
        if self.path.exists() and {file.name for file in self.path.iterdir()} - SHARED:
            raise InputError(f"{self.path}: holds files but no config.json, so it is no run; use another --workdir")
        if self.writes:
            self.write_json("config.json", mine)

    def _untouched(self) -> bool:
        """Whether the run that claimed the directory failed before it made anything that depends on its config."""
        return {file.name for file in self.path.iterdir()} - SHARED == {"config.json"}

    def write_json(self, name: str, value: Any) -> None:
        """Writes a file whole or not at all."""
        if self.writes:
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(target.name + ".part")
            partial.write_text(json.dumps(value))
            os.replace(partial, target)

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Appends one line to a journal; a value that is not a number (no episode could be scored) becomes null."""
        if self.writes:
            known = {key: None if isinstance(v, float) and math.isnan(v) else v for key, v in row.items()}
            with (self.path / name).open("a") as file:
                file.write(json.dumps(known) + "\n")

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The lines of a journal; a last line that was cut off is left out.

        Raises:
          InputError: another line is not JSON.
        """
        file = self.path / name
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [_row(file, number, line) for number, line in enumerate(lines, 1) if line.endswith("\n")]

    def rewind(self, name: str, *, stage: str, step: int) -> None:
        """Drops a stage's lines behind ``step`` from a journal: a resumed run writes them again."""
        kept = [row for row in self.rows(name) if row["stage"] != stage or row["step"] <= step]
        if self.writes and (self.path / name).exists():
            partial = self.path / (name + ".part")
            partial.write_text("".join(json.dumps(row) + "\n" for row in kept))
            os.replace(partial, self.path / name)

    def _mend(self, name: str) -> None:
        """Drops a last line that was cut off, so that the next one does not become part of it."""
        file = self.path / name
        if self.writes and file.exists():
            data = file.read_bytes()
            if not data.endswith(b"\n"):
                os.truncate(file, data.rfind(b"\n") + 1)


def _row(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{file}:{number}: not JSON ({error.msg}); delete this line to go on") from error


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file}:{error.lineno}: not JSON ({error.msg}); restore it or use another --workdir"
        ) from error
