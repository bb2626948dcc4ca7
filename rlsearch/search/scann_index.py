"""A ScaNN index (Guo et al., 2020) over a corpus: built, saved, loaded and searched on the host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.exact import check_k, check_vectors, to_hits
from rlsearch.search.scann_library import quiet, scann_ops
from rlsearch.search.scann_manifest import MANIFEST, ScannSettings, check_index, check_memory, write_manifest
from rlsearch.search.types import Hits, TextEncoder


class ScannRetriever:
    """Ranks passages by inner product with the query; equal scores rank by row.

    Up to ``settings.brute_force_rows`` passages every product is computed. Above, a query looks into
    ``leaves_searched`` partitions, ranks what it finds by 4-bit codes and the best ``reorder`` of those exactly; where
    that yields fewer than ``min(k, rows)`` passages, the query is asked again over all partitions.
    """

    def __init__(self, searcher: Any, corpus: Corpus, encoder: TextEncoder, settings: ScannSettings):
        """Wraps a searcher of scann; made by ``build``, ``of_vectors`` or ``load``."""
        self.corpus, self.encoder, self.settings, self._searcher = corpus, encoder, settings, searcher

    @classmethod
    def build(cls, corpus: Corpus, encoder: TextEncoder, settings: ScannSettings) -> ScannRetriever:
        """Encodes the passages of ``corpus`` and indexes them.

        Raises:
          InputError: the index would exceed ``settings.memory_gb``, or scann cannot be imported.
        """
        check_memory(len(corpus), encoder.width, settings, corpus.source)
        return cls.of_vectors(corpus, encoder.encode_passages(corpus.passages), encoder, settings)

    @classmethod
    def of_vectors(
        cls, corpus: Corpus, vectors: np.ndarray, encoder: TextEncoder, settings: ScannSettings
    ) -> ScannRetriever:
        """Indexes vectors f32[rows, width], which ``encoder`` made of ``corpus``; equal input gives an equal index."""
        check_memory(len(corpus), encoder.width, settings, corpus.source)
        vectors = check_vectors(vectors, corpus, encoder)
        builder = scann_ops().builder(vectors, 1, "dot_product")
        if len(corpus) <= settings.brute_force_rows:
            return cls(builder.score_brute_force().build(), corpus, encoder, settings)
        # Random initial centres differ from build to build, whatever the number of threads; k-means++ repeats itself.
        builder.set_n_training_threads(1)
        builder.tree(settings.leaves, settings.leaves_searched, training_sample_size=len(corpus), random_init=False)
        builder.score_ah(settings.block_dimensions, settings.anisotropic_threshold, training_sample_size=len(corpus))
        builder.reorder(settings.reorder)
        with quiet():
            return cls(builder.build(), corpus, encoder, settings)

    def save(self, directory: Path | str) -> None:
        """Writes the index and its manifest; the folder may be moved. An index that stands there is replaced.

        Raises:
          InputError: ``directory`` holds something other than an index.
        """
        directory = Path(directory)
        if directory.exists() and not (directory / MANIFEST).is_file() and any(directory.iterdir()):
            raise InputError(f"{directory}: holds files but no {MANIFEST}, so no index; name another folder")
        partial = directory.with_name(f"{directory.name}.{os.getpid()}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with quiet():
            self._searcher.serialize(str(partial), relative_path=True)  # else the folder could not be moved
        write_manifest(partial, self.corpus, self.encoder, self.settings)
        shutil.rmtree(directory, ignore_errors=True)
        os.replace(partial, directory)

    @classmethod
    def load(
        cls, directory: Path | str, corpus: Corpus, encoder: TextEncoder, settings: ScannSettings
    ) -> ScannRetriever:
        """Reads what ``save`` wrote; it answers as before.

        Raises:
          InputError: the folder holds no index, one of another corpus, encoder or settings, one that was cut short, or
            one above ``settings.memory_gb``.
        """
        directory = Path(directory)
        check_index(directory, corpus, encoder, settings)
        check_memory(len(corpus), encoder.width, settings, str(directory))
        with quiet():
            return cls(scann_ops().load_searcher(str(directory)), corpus, encoder, settings)

    def search(self, queries: Sequence[str], *, k: int) -> list[Hits]:
        """The ``min(k, rows)`` best passages for each query, in the order of the queries."""
        check_k(k)
        if not queries:
            return []
        k = min(k, len(self.corpus))
        vectors = np.ascontiguousarray(self.encoder.encode_queries(queries), np.float32)
        rows, scores = self._neighbours(vectors, k, self.settings.leaves_searched)
        # scann fills up short rows with row 0 and score NaN, which must never be read as a hit.
        short = np.isnan(scores).any(axis=1)
        if short.any():
            rows[short], scores[short] = self._neighbours(vectors[short], k, self.settings.leaves)
        order = np.lexsort((rows, -scores), axis=1)
        rows, scores = np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
        return [to_hits(self.corpus, row, score) for row, score in zip(rows, scores, strict=True)]

    def _neighbours(self, vectors: np.ndarray, k: int, leaves: int) -> tuple[np.ndarray, np.ndarray]:
        if len(self.corpus) <= self.settings.brute_force_rows:
            return self._searcher.search_batched(vectors, final_num_neighbors=k)
        return self._searcher.search_batched(
            vectors,
            final_num_neighbors=k,
            pre_reorder_num_neighbors=max(k, self.settings.reorder),
            leaves_to_search=leaves,
        )
