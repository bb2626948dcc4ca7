"""Search-R1's data rows as question files: ``python -m third_party.search_r1 ROWS.jsonl QUESTIONS.jsonl``.

Search-R1 (github.com/PeterGriffinJin/Search-R1) and the trainers that follow it keep questions in parquet rows: the
prompt with its instruction, ``data_source``, ``reward_model.ground_truth.target`` and ``extra_info`` with ``split`` and
``index``. This reads them as JSON lines, as ``pandas.read_parquet(F).to_json(G, orient="records", lines=True)`` writes
them, and writes the rows that ``rlsearch.envs.question_sets`` reads. Search-R1's corpora need no adapter:
``rlsearch.search.corpus`` reads them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rlsearch.errors import InputError

MARK = "Question:"  # the question stands behind the last of these in the prompt


def convert(source: Path, target: Path) -> int:
    """Writes the questions of ``source`` to ``target``; returns how many.

    The index restarts at 0 in every source set, so ids are ``<data_source>-<split>-<index>``: two sets in one file can
    never meet in one group.

    Raises:
      InputError: the file is missing or empty, or a row is malformed; names file, line and field. ``target`` is then
        left as it was.
    """
    if not source.is_file():
        raise InputError(f"{source}: no such file; give Search-R1's rows as JSON lines")
    rows = [_row(line, f"{source}:{number}") for number, line in enumerate(source.read_text().splitlines(), start=1)]
    if not rows:
        raise InputError(f"{source}: empty; give Search-R1's rows as JSON lines")
    partial = target.with_name(target.name + ".part")
    partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    partial.replace(target)
    return len(rows)


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg}); each line is one object") from error
    answers = _field(row, ("reward_model", "ground_truth", "target"), where)
    answers = [answers] if isinstance(answers, str) else answers
    if not isinstance(answers, list) or not answers or not all(isinstance(answer, str) for answer in answers):
        raise InputError(f"{where}: field reward_model.ground_truth.target: {answers!r} is not a list of answers")
    prompt = str(_field(row, ("prompt", 0, "content"), where))
    if MARK not in prompt:
        raise InputError(f"{where}: field prompt[0].content: no {MARK!r}; is it Search-R1's prompt?")
    split = str(_field(row, ("extra_info", "split"), where))
    index = _field(row, ("extra_info", "index"), where)
    return {
        "id": f"{_field(row, ('data_source',), where)}-{split}-{index}",
        "question": prompt.rpartition(MARK)[2].strip(),
        "golden_answers": answers,
        "split": split,
    }


def _field(row: Any, path: tuple[str | int, ...], where: str) -> Any:
    for depth, key in enumerate(path):
        try:
            row = row[key]
        except (KeyError, IndexError, TypeError) as error:
            name = ".".join(map(str, path[: depth + 1]))
            raise InputError(f"{where}: field {name}: missing; needs {'.'.join(map(str, path))}") from error
    return row


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(f"{convert(Path(argv[0]), Path(argv[1]))} questions in {argv[1]}")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
