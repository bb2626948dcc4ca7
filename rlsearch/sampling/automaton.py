"""Stop strings as a table over the vocabulary, so that they are found on the device however tokens split them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Automaton:
    """A byte automaton lifted to tokens.

    Attributes:
      table: ``table[state, token]`` is the state after a token's bytes, i32[A, V]. State 0 is the start; the last state
        means that a stop string has been completed, and is never left.
      beyond: ``beyond[state, token]`` is how many bytes the token carries past the end of the first stop string that
        it completes, and 0 where it completes none, i32[A, V].
    """

    table: np.ndarray
    beyond: np.ndarray

    @property
    def accept(self) -> int:
        """The state in which a stop string has been read."""
        return self.table.shape[0] - 1


def build(stops: Sequence[str], token_bytes: Sequence[bytes]) -> Automaton:
    """The automaton of Aho and Corasick (1975) over bytes, run over every token from every state.

    Args:
      stops: the strings that end a turn, at least one, none empty.
      token_bytes: the bytes that each id stands for.
    """
    if not stops or not all(stops):
        raise ValueError(f"stop strings must not be empty, got {list(stops)}")
    step = _byte_table([stop.encode() for stop in stops])
    longest = max(map(len, token_bytes))
    padded = np.full((len(token_bytes), longest), -1, np.int32)
    for token, data in enumerate(token_bytes):
        padded[token, : len(data)] = np.frombuffer(data, np.uint8)
    states, accept = step.shape[0], step.shape[0] - 1
    table = np.repeat(np.arange(states, dtype=np.int32)[:, None], len(token_bytes), axis=1)
    beyond = np.zeros_like(table)
    for column in padded.T:
        real = column >= 0
        done = table == accept
        beyond += done & real
        table = np.where(real, step[table, np.maximum(column, 0)], table)
    beyond[accept] = 0
    return Automaton(table, beyond)


def _byte_table(stops: Sequence[bytes]) -> np.ndarray:
    """i32[states, 256] over the proper prefixes of the stop strings; the last state accepts and absorbs."""
    prefixes = sorted({stop[:n] for stop in stops for n in range(len(stop))}, key=lambda p: (len(p), p))
    index = {prefix: state for state, prefix in enumerate(prefixes)}
    accept = len(prefixes)
    table = np.full((accept + 1, 256), accept, np.int32)
    for prefix, state in index.items():
        for byte in range(256):
            text = prefix + bytes([byte])
            if any(text.endswith(stop) for stop in stops):
                continue
            table[state, byte] = next(index[text[n:]] for n in range(len(text) + 1) if text[n:] in index)
    return table
