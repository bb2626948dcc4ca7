"""The one error that bad input raises."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input that cannot be used. The message says what was found, where, and what to do about it."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'seed'?``, or the known words where none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
