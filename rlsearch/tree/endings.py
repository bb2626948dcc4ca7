"""Endings below the nodes of trees, as one forest: whatever the nodes share above their endings is computed once.

To ask what comes after each prefix of a tree, every ending becomes one more branch below every node where a prefix
ends. Siblings do not see each other, so each ending is read exactly as if its prefix stood alone before it.
Axes: P places of a tree, K endings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import NONE, Forest, Kind, leaves


@dataclass(frozen=True)
class Asked:
    """A tree, the nodes of it after whose last tokens the endings stand, and the endings, as token ids."""

    root: Branch
    places: Sequence[Branch]
    endings: Sequence[Sequence[int]]


def attach(asked: Sequence[Asked], *, opening: Sequence[int]) -> tuple[Forest, list[Int[np.ndarray, "P K"]]]:
    """Builds the forest whose sampled tokens are those of the endings, and says which node each of them is.

    Branches below which no ending stands are left out. The trees are numbered as questions in their order.

    Args:
      asked: the trees; they are not changed. One without places or without endings takes no part.
      opening: tokens between every place and its endings, which are context and not sampled.

    Raises:
      ValueError: an ending without tokens, one with nothing at all before it, or a place that is not in its tree.
    """
    keys: list[tuple[int, int, int]] = []
    grown = []
    for number, one in enumerate(asked):
        if any(not len(ending) for ending in one.endings):
            raise ValueError(f"tree {number}: an ending has no tokens")
        before = len(keys)
        root = _with_endings(one.root, one, number, opening, keys)
        if len(keys) - before != len(one.places) * len(one.endings):
            raise ValueError(f"tree {number}: {len(one.places)} places, of which not each is one node of it")
        grown += [] if root is None else [(number, root)]
    forest = build(grown, terms=0)
    if (forest.sampled & (forest.prev == NONE)).any():
        raise ValueError("an ending has no token before it, so nothing says how likely its first one is")
    found = [np.zeros((len(one.places), len(one.endings)), np.int32) for one in asked]
    for (number, place, ending), node in zip(keys, np.flatnonzero(leaves(forest.nodes)), strict=True):
        found[number][place, ending] = node
    return forest, found


def _with_endings(
    branch: Branch, asked: Asked, number: int, opening: Sequence[int], keys: list[tuple[int, int, int]]
) -> Branch | None:
    """The branch and what lies above endings below it; adds a key for each ending in depth-first order."""
    children = []
    place = next((at for at, place in enumerate(asked.places) if place is branch), None)
    if place is not None and asked.endings:
        ends = []
        for index, ending in enumerate(asked.endings):
            ends.append(Branch(Kind.ANSWER, branch.turn, ending, [0.0] * len(ending), episode=len(keys)))
            keys.append((number, place, index))
        children.append(Branch(Kind.PROMPT, branch.turn, opening, children=ends))
    below = (_with_endings(child, asked, number, opening, keys) for child in branch.children)
    children += [child for child in below if child is not None]
    return Branch(branch.kind, branch.turn, branch.tokens, children=children) if children else None
