"""Encoders and indexes as a config names them, built once and kept in a directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict
from tqdm import tqdm

from rlsearch import config as configs
from rlsearch.search.corpus import Corpus
from rlsearch.search.embeddings import embed_corpus
from rlsearch.search.exact import ExactRetriever
from rlsearch.search.light import LightEncoder, LightSettings
from rlsearch.search.minilm import MiniLMEncoder, MiniLMSettings
from rlsearch.search.scann_index import ScannRetriever
from rlsearch.search.scann_manifest import MANIFEST, ScannSettings
from rlsearch.search.types import Retriever, TextEncoder


@dataclass(frozen=True)
class ExactSettings:
    """Exact search has nothing to set."""


def open_all(corpora: Mapping[str, Corpus], section: ConfigDict, directory: Path) -> dict[str, Retriever]:
    """A retriever for each corpus, as ``config.search`` says.

    ScaNN indexes are read from ``directory/<corpus>`` where they are there and built and saved where they are not; the
    vectors of MiniLM are kept in ``directory/embeddings``.

    Raises:
      InputError: an index in ``directory`` is of another corpus, encoder or settings, or was cut short.
    """
    encoder = configs.read_kind(
        section.encoder, {"light": LightSettings, "minilm": MiniLMSettings}, "config.search.encoder"
    )
    index = configs.read_kind(section.index, {"scann": ScannSettings, "exact": ExactSettings}, "config.search.index")
    shared = MiniLMEncoder.load(encoder) if isinstance(encoder, MiniLMSettings) else None
    retrievers = {}
    for name, corpus in tqdm(corpora.items(), desc="indexing corpora", unit="corpus", disable=len(corpora) == 1):
        encode = shared or LightEncoder.fit(corpus.passages, encoder)
        retrievers[name] = _open(corpus, encode, index, directory, name, keep_vectors=shared is not None)
    return retrievers


def _open(corpus: Corpus, encoder: TextEncoder, index, directory: Path, name: str, *, keep_vectors: bool) -> Retriever:
    if isinstance(index, ExactSettings):
        return ExactRetriever.build(corpus, encoder)
    if (directory / name / MANIFEST).exists():
        return ScannRetriever.load(directory / name, corpus, encoder, index)
    if keep_vectors:
        vectors = embed_corpus(corpus, encoder, directory=directory / "embeddings", chunk_rows=512)
    else:
        vectors = encoder.encode_passages(corpus.passages)
    retriever = ScannRetriever.of_vectors(corpus, vectors, encoder, index)
    retriever.save(directory / name)
    return retriever
