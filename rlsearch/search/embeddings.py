"""The vectors of a corpus on disk, so that it is embedded once, in chunks that an interruption leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from tqdm import tqdm

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.exact import check_vectors
from rlsearch.search.types import TextEncoder


def embed_corpus(corpus: Corpus, encoder: TextEncoder, *, directory: Path | str, chunk_rows: int) -> np.ndarray:
    """Vectors f32[rows, width] of the passages of ``corpus``, read from ``directory`` where they are there already.

    The file is named by the corpus digest and the encoder's name, so another corpus or encoder never meets it. Chunks
    of ``chunk_rows`` passages are written as they are made, each whole or not at all; a run that was stopped goes on
    behind the last one. The result is mapped from the file, not read into memory.

    Raises:
      InputError: a file in the cache was cut short or changed.
    """
    if chunk_rows < 1:
        raise InputError(f"embeddings: chunk_rows is {chunk_rows}; it must be at least 1")
    path = Path(directory) / f"{encoder.name}-{corpus.digest}.npy"
    if not path.exists():
        chunks = _embed_chunks(corpus, encoder, path.with_suffix(".chunks"), chunk_rows)
        _join(chunks, path, (len(corpus), encoder.width))
    return check_vectors(_read(path, (len(corpus), encoder.width)), corpus, encoder)


def _embed_chunks(corpus: Corpus, encoder: TextEncoder, folder: Path, chunk_rows: int) -> list[tuple[int, Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(corpus), chunk_rows)
    paths = [folder / f"{start:09d}-{chunk_rows}.npy" for start in starts]
    with tqdm(total=len(corpus), desc=f"embedding {Path(corpus.source).name}", unit="passage") as bar:
        for start, path in zip(starts, paths, strict=True):
            passages = corpus.passages[start : start + chunk_rows]
            if path.exists():
                _read(path, (len(passages), encoder.width))
                bar.initial += len(passages)  # made before: counts as done, not towards the speed
            else:
                _write(path, encoder.encode_passages(passages))
            bar.update(len(passages))
    return list(zip(starts, paths, strict=True))


def _join(chunks: list[tuple[int, Path]], path: Path, shape: tuple[int, int]) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    joined = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float32, shape=shape)
    for start, chunk in chunks:
        vectors = np.load(chunk)
        joined[start : start + len(vectors)] = vectors
    joined.flush()
    os.replace(partial, path)
    folder = chunks[0][1].parent
    for stale in folder.glob("*.npy*"):
        stale.unlink()
    folder.rmdir()


def _write(path: Path, vectors: np.ndarray) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        np.save(file, vectors.astype(np.float32))
    os.replace(partial, path)


def _read(path: Path, shape: tuple[int, int]) -> np.ndarray:
    try:
        vectors = np.load(path, mmap_mode="r")
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{path}: not a whole array ({error}); delete it and run again to embed it anew") from None
    if vectors.shape != shape or vectors.dtype != np.float32:
        raise InputError(
            f"{path}: holds {vectors.dtype}{list(vectors.shape)}, not float32{list(shape)}; delete it and run again"
        )
    return vectors
