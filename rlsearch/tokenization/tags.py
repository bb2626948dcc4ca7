"""The control tags of an episode, and how text from outside is kept from looking like one."""

from __future__ import annotations

import re

NAMES = ("think", "search", "information", "answer")

TAGS: tuple[str, ...] = tuple(tag for name in NAMES for tag in (f"<{name}>", f"</{name}>"))


def _prefixes(tag: str) -> list[str]:
    return [tag[:size] for size in range(1, len(tag))]


# A "<" that opens a tag, or that ends the text in the middle of one: text that follows could complete it.
_OPENING = re.compile(
    "|".join(map(re.escape, TAGS))
    + "|(?:" + "|".join(sorted({re.escape(p) for tag in TAGS for p in _prefixes(tag)}, key=len, reverse=True)) + r")\Z"
)  # fmt: skip


def escape(text: str) -> str:
    """Makes every tag in ``text`` harmless: ``<search>`` becomes ``&lt;search>``, all else stays as it is.

    A tag that the text leaves unfinished is escaped too, so ``escape(a) + escape(b)`` holds no tag whatever ``a``
    and ``b`` are. Escaping twice changes nothing.
    """
    return _OPENING.sub(lambda match: "&lt;" + match.group()[1:], text)
