"""Exact search: every inner product, on the host. The slow twin of every approximate index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.types import Hits, TextEncoder

QUERIES_AT_ONCE = 256  # bounds the score matrix to this many rows


class ExactRetriever:
    """Ranks passages by inner product with the query; equal scores rank by row."""

    def __init__(self, corpus: Corpus, encoder: TextEncoder, vectors: np.ndarray):
        """Searches ``vectors`` f32[rows, width], one per passage of ``corpus``, with ``encoder``'s queries."""
        self.corpus, self.encoder, self.vectors = corpus, encoder, check_vectors(vectors, corpus, encoder)

    @classmethod
    def build(cls, corpus: Corpus, encoder: TextEncoder) -> ExactRetriever:
        """Encodes the passages of ``corpus`` and keeps their vectors."""
        return cls(corpus, encoder, encoder.encode_passages(corpus.passages))

    def search(self, queries: Sequence[str], *, k: int) -> list[Hits]:
        """The ``min(k, rows)`` best passages for each query, in the order of the queries."""
        check_k(k)
        hits = []
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            scores = self.encoder.encode_queries(queries[start : start + QUERIES_AT_ONCE]) @ self.vectors.T
            rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            hits += [to_hits(self.corpus, row, score[row]) for row, score in zip(rows, scores, strict=True)]
        return hits


def to_hits(corpus: Corpus, rows: np.ndarray, scores: np.ndarray) -> Hits:
    """Passages of ``rows`` with their ``scores``, in the order given."""
    return Hits(tuple(corpus.passages[row] for row in rows.tolist()), tuple(scores.tolist()))


def check_k(k: int) -> None:
    """Raises InputError where ``k`` is not a positive number of hits."""
    if k < 1:
        raise InputError(f"search: k is {k}; ask for at least one passage")


def check_vectors(vectors: np.ndarray, corpus: Corpus, encoder: TextEncoder) -> np.ndarray:
    """``vectors`` as contiguous f32, checked to be one finite vector of the encoder's width per passage."""
    expected = (len(corpus), encoder.width)
    if vectors.shape != expected:
        raise InputError(
            f"vectors of {corpus.source} have shape {vectors.shape}, not {expected} (passages, width of "
            f"{encoder.name}); embed the corpus again"
        )
    if not np.isfinite(vectors).all():
        row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise InputError(f"vector of passage {corpus.passages[row].id!r} (row {row} of {corpus.source}) is not finite")
    return np.ascontiguousarray(vectors, dtype=np.float32)
