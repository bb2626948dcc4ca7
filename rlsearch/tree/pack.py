"""Cutting a forest into rows of equal width.

A tree that fits goes into one row whole. A larger tree is split between its branches: each piece holds a run of whole
subtrees and repeats the tokens above them as context. A repeated token is no target of the later pieces, so every
sampled token is a target exactly once and loss and gradient are those of the whole tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from rlsearch.errors import InputError
from rlsearch.tree.forest import NONE, Forest, Nodes, Rows, with_paths
from rlsearch.tree.paths import room

NO_TOKENS = np.zeros(0, np.int64)


class PathTooLong(InputError):
    """One path does not fit a row; ``question`` is the index of its question."""

    def __init__(self, question: int, message: str):
        super().__init__(message)
        self.question = question


@dataclass(frozen=True)
class Packed:
    """Rows, and what packing cost: ``repeated`` tokens are context that an earlier piece holds already."""

    rows: Rows
    tokens: int
    repeated: int


def pack(forest: Forest, *, width: int, targets: int, multiple: int) -> Packed:
    """Packs a forest into the fewest rows that first-fit-decreasing finds.

    Args:
      forest: what to pack.
      width: tokens of a row.
      targets: sampled tokens of a row at most.
      multiple: the number of rows is rounded up to a multiple of this (rows of padding have no targets).

    Raises:
      PathTooLong: one path alone exceeds a row; says the question's index and the size needed.
    """
    pieces = _pieces(forest, width, targets)
    bins = _first_fit(pieces, width, targets)
    count = max(multiple, -(-len(bins) // multiple) * multiple)
    rows = _empty(count, width, targets)
    for row, members in enumerate(bins):
        _fill(rows, row, members, forest)
    tokens = sum(len(piece.index) for piece in pieces)
    return Packed(rows, tokens=tokens, repeated=tokens - len(forest.token_id))


def in_blocks(rows: Rows, *, block: int, floor: int) -> tuple[Rows, int]:
    """Rows ``[M, block, ...]`` and how many of the M blocks are used; M is ``floor``, doubled until they fit.

    Blocks that are not used repeat the last one. The number of rows must divide by ``block``, as ``pack`` makes it.
    """
    used = len(rows.token_id) // block
    idle = room(floor, used) - used

    def stacked(leaf: np.ndarray) -> np.ndarray:
        leaf = leaf.reshape(used, block, *leaf.shape[1:])
        return np.concatenate([leaf, np.repeat(leaf[-1:], idle, axis=0)])

    return jax.tree.map(stacked, rows), used


def pad_nodes(nodes: Nodes, count: int, **room: int) -> Nodes:
    """Pads the node table to ``count`` rows of lone inner nodes without question, episode or tokens.

    Its paths get ``room`` for so many ``leaves``, ``depth``, ``fan`` and ``questions`` (see ``paths.lay_out``).

    Raises:
      InputError: the table has more than ``count`` nodes.
    """
    have = len(nodes.end)
    if have > count:
        raise InputError(
            f"forest of {have} nodes exceeds the {count} that the step is compiled for; raise config.rl.batch.nodes"
        )
    extra = count - have
    fill = {"end": np.arange(have + 1, count + 1), "parent": NONE, "question": 0, "episode": NONE}
    columns = {}
    for name in ("end", "parent", "kind", "turn", "question", "episode", "role", "version", "tokens"):
        column = np.broadcast_to(np.asarray(fill.get(name, 0), np.int32), (extra,))
        columns[name] = np.concatenate([getattr(nodes, name), column])
    columns["rewards"] = np.concatenate([nodes.rewards, np.zeros((extra, nodes.rewards.shape[1]), np.float32)])
    columns["notes"] = {name: np.pad(column, (0, extra)) for name, column in nodes.notes.items()}
    return with_paths(columns, **room)


@dataclass(frozen=True)
class _Piece:
    index: np.ndarray  # forest indices of the tokens, ancestors first, depth-first order
    fresh: np.ndarray  # which of them are targets if sampled
    targets: int


def _pieces(forest: Forest, width: int, targets: int) -> list[_Piece]:
    splitter = _Splitter(forest, width, targets)
    for root in np.flatnonzero(forest.nodes.parent == NONE):
        splitter.split([root], above=NO_TOKENS, claim=NO_TOKENS)
    return splitter.pieces


class _Splitter:
    """Cuts trees into pieces of at most ``width`` tokens and ``targets`` sampled ones."""

    def __init__(self, forest: Forest, width: int, targets: int):
        self.forest, self.width, self.targets = forest, width, targets
        self.starts = np.searchsorted(forest.token_node, np.arange(len(forest.nodes.end) + 1))
        self.pieces: list[_Piece] = []

    def split(self, siblings: Sequence[int], *, above: np.ndarray, claim: np.ndarray) -> None:
        """Packs subtrees below the context ``above``, as many to a piece as fit, splitting those that do not.

        ``claim`` are the tokens of ``above`` that no piece has as targets yet: the first piece made here takes them.
        """
        run: list[np.ndarray] = []
        for node in siblings:
            tokens = np.arange(self.starts[node], self.starts[self.forest.nodes.end[node]])
            if not self._fits(above, [*run, tokens], claim) and (run or self._fits(above, [tokens], NO_TOKENS)):
                claim, run = self._flush(above, run, claim), []
            if self._fits(above, [*run, tokens], claim):
                run.append(tokens)
                continue
            own = tokens[: self.starts[node + 1] - self.starts[node]]
            self._check(node, above, own)
            if self._sampled([claim, own]) > self.targets:
                claim = self._flush(above, [], claim)
            self.split(
                _children(self.forest.nodes, node),
                above=np.concatenate([above, own]),
                claim=np.concatenate([claim, own]),
            )
            claim = NO_TOKENS
        if run or len(claim):
            self._flush(above, run, claim)

    def _fits(self, above: np.ndarray, run: list[np.ndarray], claim: np.ndarray) -> bool:
        length = len(above) + sum(len(tokens) for tokens in run)
        return length <= self.width and self._sampled([*run, claim]) <= self.targets

    def _sampled(self, parts: list[np.ndarray]) -> int:
        return sum(int(self.forest.sampled[part].sum()) for part in parts)

    def _flush(self, above: np.ndarray, run: list[np.ndarray], claim: np.ndarray) -> np.ndarray:
        """Makes one piece; returns the claim that is left, which is none."""
        fresh = np.concatenate([claim, *run])
        index = np.concatenate([above, *run])
        self.pieces.append(_Piece(index, np.isin(index, fresh), self._sampled([fresh])))
        return NO_TOKENS

    def _check(self, node: int, above: np.ndarray, own: np.ndarray) -> None:
        leaf = self.forest.nodes.end[node] == node + 1
        length, sampled = len(above) + len(own), self._sampled([own])
        if leaf or length >= self.width or sampled > self.targets:
            raise PathTooLong(
                int(self.forest.nodes.question[node]),
                f"question index {self.forest.nodes.question[node]}: a path of {length} tokens, {sampled} of them"
                f" sampled in its last node, does not fit a row of {self.width} tokens and {self.targets} targets;"
                f" raise config.rl.batch.row_tokens or row_targets, or lower config.sampling.max_context",
            )


def _children(nodes: Nodes, node: int) -> list[int]:
    children, child = [], node + 1
    while child < nodes.end[node]:
        children.append(child)
        child = nodes.end[child]
    return children


def _first_fit(pieces: list[_Piece], width: int, targets: int) -> list[list[_Piece]]:
    bins: list[list[_Piece]] = []
    room: list[list[int]] = []
    for piece in sorted(pieces, key=lambda piece: -len(piece.index)):
        fitting = (row for row, left in enumerate(room) if left[0] >= len(piece.index) and left[1] >= piece.targets)
        row = next(fitting, len(bins))
        if row == len(bins):
            bins.append([])
            room.append([width, targets])
        bins[row].append(piece)
        room[row][0] -= len(piece.index)
        room[row][1] -= piece.targets
    return bins


def _empty(count: int, width: int, targets: int) -> Rows:
    own_end = np.broadcast_to(np.arange(1, width + 1, dtype=np.int32), (count, width)).copy()
    zeros, none = np.zeros((count, width), np.int32), np.full((count, targets), NONE, np.int32)
    blank = np.zeros((count, targets), np.int32)
    logp = np.zeros((count, targets), np.float32)
    return Rows(zeros.copy(), zeros.copy(), own_end, none, blank.copy(), blank.copy(), blank.copy(), logp)


def _fill(rows: Rows, row: int, members: list[_Piece], forest: Forest) -> None:
    at, slot = 0, 0
    for piece in members:
        index = piece.index
        span = slice(at, at + len(index))
        rows.token_id[row, span] = forest.token_id[index]
        rows.position[row, span] = forest.position[index]
        rows.token_end[row, span] = at + np.searchsorted(index, forest.token_end[index])
        chosen = np.flatnonzero(piece.fresh & forest.sampled[index])
        where = slice(slot, slot + len(chosen))
        rows.target[row, where] = at + chosen
        rows.target_prev[row, where] = at + np.searchsorted(index, forest.prev[index[chosen]])
        rows.target_id[row, where] = forest.token_id[index[chosen]]
        rows.target_node[row, where] = forest.token_node[index[chosen]]
        rows.behavior_logp[row, where] = forest.behavior_logp[index[chosen]]
        at, slot = at + len(index), slot + len(chosen)
