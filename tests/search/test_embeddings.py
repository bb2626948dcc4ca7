from __future__ import annotations

import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.embeddings import embed_corpus
from rlsearch.search.light import LightEncoder, LightSettings


class Counting:
    """Passes on to an encoder, counts passages, and can be told to break."""

    def __init__(self, encoder, *, break_after):
        self.name, self.width, self.encoder = encoder.name, encoder.width, encoder
        self.encoded, self.break_after = 0, break_after

    def encode_passages(self, passages):
        if self.encoded + len(passages) > self.break_after:
            raise KeyboardInterrupt
        self.encoded += len(passages)
        return self.encoder.encode_passages(passages)


@pytest.fixture
def counting(small_encoder):
    return Counting(small_encoder, break_after=10**6)


@pytest.mark.parametrize("chunk_rows", [1, 7, 240, 1000])
def test_cached_vectors_are_the_encoders(small, counting, small_encoder, tmp_path, chunk_rows):
    expected = small_encoder.encode_passages(small.passages)
    for _ in range(2):
        vectors = embed_corpus(small, counting, directory=tmp_path / "cache", chunk_rows=chunk_rows)
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
        assert counting.encoded == len(small)  # the second time nothing is encoded
    assert len(list((tmp_path / "cache").iterdir())) == 1  # no chunk is left


def test_an_interrupted_run_goes_on_where_it_stopped(small, small_encoder, tmp_path, capfd):
    broken = Counting(small_encoder, break_after=105)
    with pytest.raises(KeyboardInterrupt):
        embed_corpus(small, broken, directory=tmp_path, chunk_rows=10)
    assert broken.encoded == 100
    rest = Counting(small_encoder, break_after=10**6)
    vectors = embed_corpus(small, rest, directory=tmp_path, chunk_rows=10)
    assert rest.encoded == len(small) - 100
    whole = embed_corpus(small, small_encoder, directory=tmp_path / "another", chunk_rows=10)
    np.testing.assert_array_equal(vectors, whole)
    assert f"{len(small)}/{len(small)}" in capfd.readouterr().err  # the progress bar


def test_corpora_and_encoders_do_not_meet(small, small_encoder, tmp_path):
    other = Corpus.of(small.passages[::-1], "reversed")
    finer = LightEncoder.fit(small.passages, LightSettings(128, 3.0, 2.0))
    a = embed_corpus(small, small_encoder, directory=tmp_path, chunk_rows=100)
    b = embed_corpus(other, small_encoder, directory=tmp_path, chunk_rows=100)
    c = embed_corpus(small, finer, directory=tmp_path, chunk_rows=100)
    np.testing.assert_allclose(a, b[::-1], atol=1e-6)
    assert c.shape == (len(small), 128)


@pytest.mark.parametrize("kept", [0, 50, -1])
def test_a_file_cut_short_is_named(small, counting, small_encoder, tmp_path, kept):
    embed_corpus(small, counting, directory=tmp_path, chunk_rows=100)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=rf"{path.name}: not a whole array .*delete it and run again"):
        embed_corpus(small, counting, directory=tmp_path, chunk_rows=100)


def test_a_chunk_cut_short_is_named(small, small_encoder, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        embed_corpus(small, Counting(small_encoder, break_after=100), directory=tmp_path, chunk_rows=50)
    chunk = sorted(tmp_path.glob("*/*.npy"))[1]
    chunk.write_bytes(chunk.read_bytes()[:-10])
    with pytest.raises(InputError, match=rf"{chunk.name}: not a whole array"):
        embed_corpus(small, small_encoder, directory=tmp_path, chunk_rows=50)


def test_an_array_of_another_shape_is_named(small, counting, tmp_path):
    embed_corpus(small, counting, directory=tmp_path, chunk_rows=100)
    (path,) = tmp_path.iterdir()
    np.save(path, np.zeros((3, 256), np.float32))
    with pytest.raises(InputError, match=r"holds float32\[3, 256\], not float32\[240, 256\]"):
        embed_corpus(small, counting, directory=tmp_path, chunk_rows=100)


def test_chunks_need_rows(small, counting, tmp_path):
    with pytest.raises(InputError, match="chunk_rows is 0"):
        embed_corpus(small, counting, directory=tmp_path, chunk_rows=0)
