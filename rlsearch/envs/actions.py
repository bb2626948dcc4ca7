"""The action grammar: what a turn of the policy asks for.

::

    turn    = [thought] prose action carry
    thought = everything up to the last "</think>"; the tags in it are quotations
    prose   = text without any tag; blank, or ending in a line break or in one of . ! ? :
    action  = "<search>" content "</search>"  |  "<answer>" content "</answer>"
    content = text without any tag, not blank; blanks at its ends are stripped
    carry   = no letter and no digit: what the last token of the closing tag may bring along, such as a line break

Anything else is invalid. Search-R1 takes the first pair of tags anywhere in the turn, so every episode that it would
play the way it was meant is played the same way here. The grammar is narrower where that rule reads a quotation as an
action: a tag inside a thought (``<think>the doc says <answer>foo</answer></think>``), a thought that never ends, a tag
in the middle of a sentence (``I use <search> and </search> tags``), and an empty query. One string ``<think>`` too few
is forgiven, because some chat templates open the thought in the prompt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlsearch.tokenization.tags import TAGS

_TAG = re.compile("|".join(re.escape(tag) for tag in TAGS))
_KINDS = {"<search>": "search", "<answer>": "answer"}
_SENTENCE_ENDS = (".", "!", "?", ":")


@dataclass(frozen=True)
class Action:
    """``kind`` is "search", "answer" or "invalid"; ``content`` is the query or the answer, "" where invalid."""

    kind: str
    content: str


INVALID = Action("invalid", "")


def parse(text: str) -> Action:
    """Reads one turn by the grammar above. Every string has exactly one reading; none raises."""
    rest = text.rpartition("</think>")[2]
    opening = _TAG.search(rest)
    if opening is None or opening.group() not in _KINDS or not _opens_action(rest[: opening.start()]):
        return INVALID
    kind = _KINDS[opening.group()]
    closing = _TAG.search(rest, opening.end())
    if closing is None or closing.group() != f"</{kind}>":
        return INVALID
    content = rest[opening.end() : closing.start()].strip()
    carried = any(character.isalnum() for character in rest[closing.end() :])
    return INVALID if carried or not content else Action(kind, content)


def _opens_action(prose: str) -> bool:
    """Whether a tag after ``prose`` starts something new, rather than being a word of a sentence."""
    prose = prose.rstrip(" \t")
    return not prose or prose[-1] in "\r\n" or prose.endswith(_SENTENCE_ENDS)
