"""Observations: what the model reads after its turn, as pieces of text and then as token ids.

Tags and fixed sentences are trusted; passage text is not. It is escaped here, so that it can never read as a tag, and
encoded apart from the tags, so that it can never become a control token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsearch.envs.types import Failure, Piece
from rlsearch.errors import InputError
from rlsearch.search.types import Hits, Passage
from rlsearch.tokenization.tags import escape
from rlsearch.tokenization.types import Tokenizer

STYLES = ("search_r1", "compact")

TRUNCATED = " ..."
"""Stands after passage text that was cut to fit."""

_OPEN = {"search_r1": "\n\n<information>", "compact": "<information>"}
_CLOSE = {"search_r1": "</information>\n\n", "compact": "</information>"}
_INVALID = {
    "search_r1": (
        "\nThat turn holds no valid action. To look something up, write <search> query </search>. "
        "To finish, write <answer> answer </answer>. Let me try again.\n"
    ),
    "compact": "<information> invalid</information>",
}


def render(hits: Hits, *, style: str) -> tuple[Piece, ...]:
    """The information block for ``hits``.

    ``search_r1`` is Search-R1's rendering byte for byte: a line ``Doc 1(Title: "...") text`` for each passage (its
    corpus keeps titles in double quotes; ``Passage.title`` has none), the block stripped, two line breaks on either
    side. ``compact`` is ``<information> text text</information>``: the texts alone, a space before each.
    """
    lines = [_line(rank, passage, style) for rank, passage in enumerate(hits.passages, start=1)]
    block = "\n".join(lines).strip() if style == "search_r1" else "".join(lines)
    return Piece(_OPEN[style], True), Piece(escape(block), False), Piece(_CLOSE[style], True)


def _line(rank: int, passage: Passage, style: str) -> str:
    return f'Doc {rank}(Title: "{passage.title}") {passage.text}' if style == "search_r1" else f" {passage.text}"


def failed(failure: Failure, *, style: str) -> tuple[Piece, ...]:
    """The information block for a search that failed; the policy reads why."""
    between = "" if style == "search_r1" else " "
    return (
        Piece(_OPEN[style], True),
        Piece(escape(f"{between}The search failed: {failure.reason}"), False),
        Piece(_CLOSE[style], True),
    )


def invalid(*, style: str) -> tuple[Piece, ...]:
    """What is said after a turn without a valid action. In ``search_r1`` style it names the two forms."""
    return (Piece(_INVALID[style], True),)


@dataclass(frozen=True)
class Encoded:
    """An observation as token ids; ``cut`` is the number of passage tokens that did not fit."""

    ids: list[int]
    cut: int


def encode(pieces: Sequence[Piece], *, tokenizer: Tokenizer, limit: int) -> Encoded:
    """Encodes ``pieces`` in at most ``limit`` tokens.

    Only untrusted text is cut, from its end and never inside a character; ``TRUNCATED`` follows it where it fits. Tags
    always survive, so that a long passage cannot swallow the end of its block.

    Raises:
      InputError: the trusted pieces alone are longer than ``limit``.
    """
    parts = [tokenizer.encode_control(p.text) if p.trusted else tokenizer.encode(p.text) for p in pieces]
    room = limit - sum(len(ids) for ids, piece in zip(parts, pieces, strict=True) if piece.trusted)
    if room < 0:
        raise InputError(
            f"observation limit of {limit} tokens: the tags alone take {limit - room}; raise it to more than that"
        )
    total = sum(len(ids) for ids, piece in zip(parts, pieces, strict=True) if not piece.trusted)
    if total <= room:
        return Encoded([token for ids in parts for token in ids], 0)
    return _cut(parts, pieces, tokenizer=tokenizer, room=room)


def _cut(parts: list[list[int]], pieces: Sequence[Piece], *, tokenizer: Tokenizer, room: int) -> Encoded:
    """Keeps ``room`` tokens of untrusted text, the truncation mark among them; the text is known not to fit."""
    mark = tokenizer.encode(TRUNCATED)
    mark = mark if len(mark) <= room else []
    room -= len(mark)
    ids, cut, marked = [], 0, False
    for part, piece in zip(parts, pieces, strict=True):
        if piece.trusted:
            ids += part
            continue
        kept = _whole_characters(part[:room], piece.text, tokenizer) if len(part) > room else part
        ids += kept
        room -= len(kept)
        cut += len(part) - len(kept)
        if len(kept) < len(part):
            ids += [] if marked else mark
            room, marked = 0, True
    return Encoded(ids, cut)


def _whole_characters(ids: list[int], text: str, tokenizer: Tokenizer) -> list[int]:
    """Drops trailing tokens that hold the first bytes of a character only."""
    while ids and tokenizer.decode(ids)[-1:] == "\ufffd" and not text.startswith(tokenizer.decode(ids)):
        ids = ids[:-1]
    return ids
