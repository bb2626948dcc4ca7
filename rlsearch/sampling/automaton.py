"""Stop strings as a table over the vocabulary, so that they are found on the device however tokens split them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlsearch.errors import InputError
from rlsearch.sampling.menu import Spelling


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


@dataclass(frozen=True)
class Stops:
    """The automata of several sets of stop strings, one below the other.

    Attributes:
      table: i32[A, V], as ``Automaton.table``.
      accepting: in which states a stop string has been read, bool[A].
      starts: the state in which a turn with a set of stop strings begins.
    """

    table: np.ndarray
    accepting: np.ndarray
    starts: Mapping[tuple[str, ...], int]

    def after(self, state: int, tokens: Sequence[int]) -> int:
        """The state after some tokens."""
        for token in tokens:
            state = int(self.table[state, token])
        return state


def join(sets: Sequence[tuple[str, ...]], token_bytes: Sequence[bytes]) -> Stops:
    """The automata of every set of stop strings.

    Raises:
      InputError: a stop string that the vocabulary cannot spell.
    """
    spelling = Spelling(token_bytes, ())
    tables, accepting, starts, states = [], [], {}, 0
    for stops in sets:
        for stop in stops:
            try:
                spelling.menu([stop])
            except InputError as error:
                raise InputError(f"the stop string {stop!r} would never be found: {error}") from error
        automaton = build(stops, token_bytes)
        starts[stops] = states
        tables.append(automaton.table + states)
        accepting.append(np.arange(len(automaton.table)) == automaton.accept)
        states += len(automaton.table)
    return Stops(np.concatenate(tables), np.concatenate(accepting), starts)


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
