"""A corpus: passages in a fixed order, unique ids, and a digest that indexes and caches are checked against.

On disk a corpus is JSON lines, ``{"id": ..., "title": ..., "text": ...}``. Search-R1's rows, ``{"id": ...,
"contents": "\\"Title\\"\\nText"}`` (Jin et al., 2025), are read as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rlsearch.errors import InputError
from rlsearch.search.types import Passage

ROW = '{"id": "...", "title": "...", "text": "..."}'


@dataclass(frozen=True)
class Corpus:
    """Passages in row order. Make one with ``Corpus.of`` or ``load_corpus``, which check it.

    ``source`` says where the rows came from, for messages; ``digest`` is the SHA-256 over the rows in order.
    """

    passages: tuple[Passage, ...]
    source: str
    digest: str

    @classmethod
    def of(cls, passages: Iterable[Passage], source: str) -> Corpus:
        """A corpus of ``passages``.

        Raises:
          InputError: there are none, two share an id, or one has no text.
        """
        passages = tuple(passages)
        _check(passages, [f"{source}: passage {row}" for row in range(1, len(passages) + 1)], source)
        return cls(passages=passages, source=source, digest=_digest(passages))

    def __len__(self) -> int:
        return len(self.passages)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """From a passage's id to its row."""
        return {passage.id: row for row, passage in enumerate(self.passages)}


def load_corpus(path: Path | str) -> Corpus:
    """Reads a corpus from JSON lines; fields other than those named above are left aside.

    Raises:
      InputError: the file is missing or empty, or a row is malformed, lacks a field, has one of the wrong type, has no
        text, or repeats an id. The message names file, line and field.
    """
    path = Path(path)
    passages, places = [], []
    for number, line in enumerate(_lines(path), start=1):
        place = f"{path}:{number}"
        passages.append(_passage(_row(line, place), place))
        places.append(place)
    _check(passages, places, str(path))
    return Corpus(passages=tuple(passages), source=str(path), digest=_digest(passages))


def write_corpus(path: Path | str, corpus: Corpus) -> None:
    """Writes JSON lines that ``load_corpus`` reads back to the same digest; the file appears whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        for passage in corpus.passages:
            row = {"id": passage.id, "title": passage.title, "text": passage.text}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    os.replace(partial, path)


def _lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"corpus {path}: no such file; give the path of a JSON lines file of rows {ROW}") from None
    except OSError as error:
        raise InputError(f"corpus {path}: cannot be read ({error.strerror}); name a JSON lines file") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8") from None
    return text.removesuffix("\n").split("\n") if text else []


def _row(line: str, place: str) -> dict:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        found = "a blank line" if not line.strip() else f"malformed JSON, column {error.colno}: {error.msg}"
        raise InputError(f"{place}: {found}; every line must be one object {ROW}") from None
    if not isinstance(row, dict):
        raise InputError(f"{place}: a JSON {type(row).__name__}, not an object; every line must be {ROW}")
    return row


def _passage(row: dict, place: str) -> Passage:
    if "contents" in row and "text" not in row:
        title, text = _split_contents(_field(row, "contents", place), place)
        return Passage(id=_field(row, "id", place), title=title, text=text)
    return Passage(**{name: _field(row, name, place) for name in ("id", "title", "text")})


def _field(row: dict, name: str, place: str) -> str:
    if name not in row:
        raise InputError(f"{place}: no field {name!r}, found {', '.join(map(repr, row)) or 'none'}; a row is {ROW}")
    value = row[name]
    if not isinstance(value, str):
        raise InputError(f"{place}: field {name!r} is {json.dumps(value)[:40]}, not a string; write one")
    return value


def _split_contents(contents: str, place: str) -> tuple[str, str]:
    title, newline, text = contents.partition("\n")
    if not newline or len(title) < 2 or title[0] != '"' or title[-1] != '"':
        raise InputError(
            f"{place}: field 'contents' begins {contents[:40]!r}; its first line must be the title in double quotes"
        )
    return title[1:-1], text


def _check(passages: list[Passage] | tuple[Passage, ...], places: list[str], source: str) -> None:
    if not passages:
        raise InputError(f"corpus {source}: empty; it needs at least one row {ROW}")
    first: dict[str, str] = {}
    for passage, place in zip(passages, places, strict=True):
        if not passage.id:
            raise InputError(f"{place}: field 'id' is empty; give every passage an id of its own")
        if not passage.text.strip():
            raise InputError(f"{place}: field 'text' of passage {passage.id!r} is empty; drop the row or fill it in")
        if passage.id in first:
            raise InputError(f"{place}: field 'id' repeats {passage.id!r} of {first[passage.id]}; ids must be unique")
        first[passage.id] = place
        for name in ("id", "title", "text"):
            if not _is_unicode(getattr(passage, name)):
                raise InputError(f"{place}: field {name!r} holds half of a surrogate pair; write the whole character")


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _digest(passages: Iterable[Passage]) -> str:
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(json.dumps([passage.id, passage.title, passage.text]).encode())
        digest.update(b"\n")
    return digest.hexdigest()
