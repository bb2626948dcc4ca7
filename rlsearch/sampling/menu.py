"""Menus: finite sets of strings, one of which a turn writes, as a trie over tokens.

Axes: M states, K tokens that may follow in a state at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from rlsearch.errors import InputError

NONE = -1
DONE = -2


@dataclass(frozen=True)
class Menu:
    """A trie over tokens: in state m the tokens ``allowed[m]`` may be drawn, and lead to the states ``after[m]``.

    A string may be spelled in every way that the vocabulary knows. State 0 is the start; ``DONE`` follows where a
    string is complete. Where one string begins with another, an end token says that the shorter one was meant.
    """

    allowed: Int[np.ndarray, "M K"]  # NONE behind the last
    after: Int[np.ndarray, "M K"]


class Spelling:
    """The ids by what they stand for, in which menus are spelled; made once for a vocabulary.

    Args:
      token_bytes: the bytes that each id stands for.
      end_ids: ids that end a turn; they spell nothing.
    """

    def __init__(self, token_bytes: Sequence[bytes], end_ids: Sequence[int]):
        self.end_ids = tuple(end_ids)
        self._ids: dict[bytes, list[int]] = {}
        for token, data in enumerate(token_bytes):
            if data and token not in self.end_ids:
                self._ids.setdefault(data, []).append(token)
        self._longest = max(map(len, self._ids))

    def menu(self, strings: Sequence[str]) -> Menu:
        """The menu of ``strings``.

        Raises:
          InputError: no string, an empty one, one that occurs twice or that the vocabulary cannot spell.
        """
        if not strings or not all(strings):
            raise InputError(f"a menu needs strings, none of them empty; it has {list(strings)!r}")
        if len(set(strings)) < len(strings):
            twice = next(one for one in strings if list(strings).count(one) > 1)
            raise InputError(f"{twice!r} stands twice in a menu; each string must be another")
        whole = sorted(string.encode() for string in strings)
        index, rows, waiting = {b"": 0}, {}, [(b"", whole)]
        while waiting:
            prefix, offered = waiting.pop()
            rows[prefix] = self._row(prefix, offered)
            for _, text in rows[prefix]:
                longer = [one for one in offered if one.startswith(text)]
                if text not in index and longer != [text]:
                    index[text] = len(index)
                    waiting.append((text, longer))
        reached = self._prune(rows, set(whole))
        for string in strings:
            if string.encode() not in reached:
                raise InputError(f"the vocabulary cannot spell {string!r}, which a menu offers")
        return self._table(index, rows, set(whole))

    def _row(self, prefix: bytes, offered: Sequence[bytes]) -> list[tuple[int, bytes]]:
        """The tokens that may follow a prefix of what is offered, with what then has been written."""
        at, texts = len(prefix), set()
        for string in offered:
            texts.update(string[:end] for end in range(at + 1, min(at + self._longest, len(string)) + 1))
        return sorted((token, text) for text in texts for token in self._ids.get(text[at:], ()))

    def _prune(self, rows: dict[bytes, list], whole: set[bytes]) -> set[bytes]:
        """Drops tokens that lead to no whole string; returns the strings that can be written."""
        alive = set(whole)
        for prefix in sorted(rows, key=len, reverse=True):
            rows[prefix] = [(token, text) for token, text in rows[prefix] if text in alive]
            if rows[prefix]:
                alive.add(prefix)
        reachable, waiting = set(), [b""]
        while waiting:
            for _, text in rows.get(waiting.pop(), ()):
                if text not in reachable:
                    reachable.add(text)
                    waiting.append(text)
        return reachable & whole

    def _table(self, index: dict[bytes, int], rows: dict[bytes, list], whole: set[bytes]) -> Menu:
        numbered = []
        for prefix in index:  # in the order of their numbers
            row = [(token, index.get(text, DONE)) for token, text in rows[prefix]]
            numbered.append(row + [(token, DONE) for token in self.end_ids if prefix in whole])
        size = (len(numbered), max(map(len, numbered)))
        allowed, after = np.full(size, NONE, np.int32), np.full(size, DONE, np.int32)
        for number, row in enumerate(numbered):
            if row:
                allowed[number, : len(row)], after[number, : len(row)] = np.transpose(row)
        return Menu(allowed, after)
