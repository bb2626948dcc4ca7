"""What a retriever is: queries in, ranked passages out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Passage:
    """One row of a corpus."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Hits:
    """The passages found for one query, best first, with one score each (inner product)."""

    passages: tuple[Passage, ...]
    scores: tuple[float, ...]


class Retriever(Protocol):
    """Finds passages. ``search`` answers every query, in order, with ``min(k, rows)`` passages."""

    def search(self, queries: Sequence[str], *, k: int) -> list[Hits]: ...


class TextEncoder(Protocol):
    """Maps text to unit vectors of ``width`` numbers; ``name`` identifies weights and settings in an index manifest."""

    name: str
    width: int

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray: ...

    def encode_passages(self, passages: Sequence[Passage]) -> np.ndarray: ...
