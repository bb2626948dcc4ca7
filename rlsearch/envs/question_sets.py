"""Questions from a JSONL file, one object a line.

Read are ``id``, ``question`` and ``golden_answers``, and where present ``split``, ``hops``, ``supporting_ids`` with
``supporting_complete``. Other fields are left alone. Every fault is an ``InputError`` that names file, line and field.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlsearch.envs.types import Question
from rlsearch.errors import InputError


def load_questions(path: str | Path, *, source: str, corpus: str, split: str | None) -> list[Question]:
    """Reads the questions of one split, in file order. The whole file is checked, whatever the split.

    Args:
      path: the file.
      source: name of the question set; ids become ``<source>/<id>``, so that sets can be mixed in one run.
      corpus: name of the corpus that the questions are about.
      split: the value of ``split`` to keep; None keeps every question.

    Returns:
      Questions whose text is stripped and ends in a question mark, as Search-R1's rows do. ``supporting_ids`` is empty
      unless ``supporting_complete`` is true, since recall over part of the evidence would mislead.

    Raises:
      InputError: the file is missing, empty or malformed, two rows share an id, a field is absent or of the wrong
        type, a question has no golden answer, or no row is of ``split``.
    """
    path = Path(path)
    lines_by_id: dict[str, int] = {}
    splits: Counter[str | None] = Counter()
    questions = []
    for number, row in _rows(path):
        where = f"{path}:{number}"
        question = _question(row, where, source=source, corpus=corpus)
        if question.id in lines_by_id:
            raise InputError(
                f"{where}: field 'id': {row['id']!r} is also on line {lines_by_id[question.id]}; "
                "remove one of the two or give it an id of its own"
            )
        lines_by_id[question.id] = number
        found = _text(row, "split", where) if split is not None or "split" in row else None
        splits[found] += 1
        if split is None or found == split:
            questions.append(question)
    if not lines_by_id:
        raise InputError(f"{path}: holds no question; needs one JSON object a line")
    if not questions:
        known = ", ".join(f"{name!r} ({count} questions)" for name, count in sorted(splits.items()))
        raise InputError(f"{path}: field 'split': no row is {split!r}; the file has {known}; choose one of these")
    return questions


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers, from 1, and objects; blank lines are passed over."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; set the path of the question set to a JSONL file")
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8"))
        except ValueError as error:  # covers bad JSON and bad UTF-8
            raise InputError(f"{path}:{number}: not JSON in UTF-8 ({error}); write one object a line") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}:{number}: {_shown(row)} where an object with an id and a question belongs")
        yield number, row


def _question(row: dict[str, Any], where: str, *, source: str, corpus: str) -> Question:
    identity = _text(row, "id", where)
    text = _text(row, "question", where)
    answers = _texts(row, "golden_answers", where)
    if not answers:
        raise InputError(f"{where}: field 'golden_answers': empty; needs at least one answer to score against")
    return Question(
        id=f"{source}/{identity}",
        text=text if text.endswith("?") else f"{text}?",
        answers=answers,
        supporting_ids=_supporting(row, where),
        hops=_hops(row, where),
        corpus=corpus,
    )


def _supporting(row: dict[str, Any], where: str) -> tuple[str, ...]:
    if "supporting_ids" not in row:
        return ()
    ids = _texts(row, "supporting_ids", where)
    complete = _field(row, "supporting_complete", where)
    if not isinstance(complete, bool):
        raise InputError(f"{where}: field 'supporting_complete': {_shown(complete)}; needs true or false")
    return ids if complete else ()


def _hops(row: dict[str, Any], where: str) -> int:
    hops = row.get("hops", 0)
    if isinstance(hops, bool) or not isinstance(hops, int) or hops < 0:
        raise InputError(f"{where}: field 'hops': {_shown(hops)}; needs a whole number, 0 where unknown")
    return hops


def _field(row: dict[str, Any], name: str, where: str) -> Any:
    if name not in row:
        raise InputError(f"{where}: field {name!r}: missing; the row has {', '.join(row) or 'no field'}; add it")
    return row[name]


def _text(row: dict[str, Any], name: str, where: str) -> str:
    return _checked(_field(row, name, where), f"{where}: field {name!r}")


def _texts(row: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    values = _field(row, name, where)
    if not isinstance(values, list):
        raise InputError(f"{where}: field {name!r}: {_shown(values)}; needs a list of texts")
    return tuple(_checked(value, f"{where}: field {name!r}, item {index}") for index, value in enumerate(values))


def _checked(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: {_shown(value)}; needs text in quotes")
    if not value.strip():
        raise InputError(f"{where}: blank; needs some text")
    return value.strip()


def _shown(value: Any) -> str:
    """A value and its type, cut to a length that fits a message."""
    text = json.dumps(value, ensure_ascii=False)
    return f"{text[:40]}{'...' if len(text) > 40 else ''} ({type(value).__name__})"
