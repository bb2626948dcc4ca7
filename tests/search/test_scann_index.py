from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.exact import ExactRetriever
from rlsearch.search.light import LightEncoder
from rlsearch.search.scann_index import ScannRetriever
from rlsearch.search.scann_manifest import ScannSettings
from rlsearch.search.types import Passage
from tests.search.sentences import questions

SETTINGS = ScannSettings(
    brute_force_rows=1000,
    leaves=40,
    leaves_searched=20,
    block_dimensions=2,
    anisotropic_threshold=0.2,
    reorder=100,
    memory_gb=1.0,
)
NARROW = dataclasses.replace(SETTINGS, leaves_searched=1, reorder=5)


@pytest.fixture(scope="module")
def tree(large, large_encoder):
    return ScannRetriever.build(large, large_encoder, SETTINGS)


@pytest.fixture(scope="module")
def flat(small, small_encoder):
    return ScannRetriever.build(small, small_encoder, SETTINGS)


def ids(hits):
    return [[passage.id for passage in hit.passages] for hit in hits]


def check_scores(found, asked, corpus, encoder):
    """Every hit has the inner product that exact search computes for it."""
    exact = encoder.encode_queries(asked) @ encoder.encode_passages(corpus.passages).T
    for hits, scores in zip(found, exact, strict=True):
        rows = [corpus.row_of[passage.id] for passage in hits.passages]
        np.testing.assert_allclose(hits.scores, scores[rows], atol=1e-5)


@pytest.mark.parametrize("k", [1, 3, 10, 240, 1000])
def test_brute_force_is_exact_search(flat, small, small_encoder, k):
    asked = [*questions(small.passages[:50]), "", "unknown words"]
    found, exact = flat.search(asked, k=k), ExactRetriever.build(small, small_encoder).search(asked, k=k)
    np.testing.assert_allclose([hits.scores for hits in found], [hits.scores for hits in exact], atol=1e-5)
    check_scores(found, asked, small, small_encoder)
    assert [row[:1] for row in ids(found)] == [row[:1] for row in ids(exact)]


def test_a_tree_finds_what_exact_search_finds(tree, large, large_encoder):
    asked = questions(large.passages)[::4]
    found, exact = tree.search(asked, k=3), ExactRetriever.build(large, large_encoder).search(asked, k=3)
    recall = np.mean([len(set(a) & set(b)) / 3 for a, b in zip(ids(found), ids(exact), strict=True)])
    assert recall > 0.9
    check_scores(found, asked, large, large_encoder)


@pytest.mark.slow
def test_a_tree_over_hotpotqa_finds_what_exact_search_finds(hotpotqa, hotpotqa_corpus, minilm):
    corpus = Corpus.of(hotpotqa_corpus.passages[:1500], "part of hotpotqa")
    lines = (hotpotqa / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    asked = [json.loads(line)["question"] for line in lines[:100]]
    exact = ExactRetriever.build(corpus, minilm)
    found = ScannRetriever.of_vectors(corpus, exact.vectors, minilm, SETTINGS).search(asked, k=10)
    best = exact.search(asked, k=10)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids(found), ids(best), strict=True)])
    assert recall > 0.95
    same = [a[0] == b[0] for a, b in zip(ids(found), ids(best), strict=True)]
    assert np.mean(same) > 0.95  # a tree may miss even the best passage, where the query lies far from every centre


@pytest.mark.parametrize("k", [3, 4, 10, 15000])
def test_three_passages_give_three_hits(light, k):
    rows = [Passage("a", "A", "one"), Passage("b", "B", "two"), Passage("c", "C", "three")]
    corpus = Corpus.of(rows, "three")
    retriever = ScannRetriever.build(corpus, LightEncoder.fit(rows, light), SETTINGS)
    for hits in retriever.search(["two", "nothing known", ""], k=k):
        assert sorted(passage.id for passage in hits.passages) == ["a", "b", "c"]
        assert len(hits.scores) == 3
        assert np.isfinite(hits.scores).all()
    assert retriever.search(["two"], k=k)[0].passages[0].id == "b"


@pytest.mark.parametrize("k", [1, 300, 2000, 15000])
def test_a_narrow_tree_still_gives_every_hit_asked_for(large, large_encoder, k):
    retriever = ScannRetriever.build(large, large_encoder, NARROW)
    for hits in retriever.search([*questions(large.passages[:5]), "", "unknown"], k=k):
        expected = min(k, len(large))
        assert len({passage.id for passage in hits.passages}) == len(hits.scores) == expected
        assert np.isfinite(hits.scores).all()
        assert list(hits.scores) == sorted(hits.scores, reverse=True)


def test_equal_scores_rank_by_row(light):
    rows = [Passage(str(row), "Karlon", "The mother of Karlon is Vesta.") for row in range(20)]
    retriever = ScannRetriever.build(Corpus.of(rows, "same"), LightEncoder.fit(rows, light), SETTINGS)
    assert ids(retriever.search(["mother Karlon", ""], k=20)) == [[str(row) for row in range(20)]] * 2


def test_two_builds_are_the_same_to_the_bit(tree, large, large_encoder, tmp_path):
    asked = questions(large.passages)[:200]
    again = ScannRetriever.build(large, large_encoder, SETTINGS)
    assert again.search(asked, k=10) == tree.search(asked, k=10)
    again.save(tmp_path / "again")
    tree.save(tmp_path / "first")
    manifests = [(tmp_path / name / "index.json").read_text() for name in ("again", "first")]
    assert manifests[0] == manifests[1]  # they hold the SHA-256 of every file


def test_each_query_is_answered_as_if_alone(tree, flat, large, small):
    for retriever, corpus in ((tree, large), (flat, small)):
        asked = questions(corpus.passages[:70])
        together = retriever.search(asked, k=3)
        assert ids(together) == [ids(retriever.search([query], k=3))[0] for query in asked]
        assert retriever.search([], k=3) == []


@pytest.mark.parametrize("kind", ["tree", "flat"])
def test_a_saved_and_moved_index_answers_as_before(request, tmp_path, kind):
    retriever = request.getfixturevalue(kind)
    retriever.save(tmp_path / "made" / "index")
    retriever.save(tmp_path / "made" / "index")  # replaces what stands there
    shutil.move(tmp_path / "made" / "index", tmp_path / "moved")
    assert list((tmp_path / "made").iterdir()) == []
    again = ScannRetriever.load(tmp_path / "moved", retriever.corpus, retriever.encoder, SETTINGS)
    asked = questions(retriever.corpus.passages[:100])
    assert again.search(asked, k=5) == retriever.search(asked, k=5)


def test_a_folder_of_something_else_is_not_overwritten(flat, tmp_path):
    (tmp_path / "thesis.txt").write_text("words")
    with pytest.raises(InputError, match=r"holds files but no index.json"):
        flat.save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "words"


def test_a_failed_save_leaves_the_old_index(flat, tmp_path, monkeypatch):
    flat.save(tmp_path / "index")

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("rlsearch.search.scann_index.write_manifest", full)
    with pytest.raises(OSError, match="no space"):
        flat.save(tmp_path / "index")
    assert ScannRetriever.load(tmp_path / "index", flat.corpus, flat.encoder, SETTINGS).search(["x"], k=1)


def test_an_index_above_the_budget_is_refused_before_anything_is_encoded(large, large_encoder, tree, tmp_path):
    class Never:
        name, width = large_encoder.name, large_encoder.width

        def encode_passages(self, passages):
            raise AssertionError("encoded")

    tight = dataclasses.replace(SETTINGS, memory_gb=0.001)
    with pytest.raises(
        InputError, match=r"large: 2000 passages x 256 numbers need about 0\.00\d+ GiB.*memory_gb is 0.001"
    ):
        ScannRetriever.build(large, Never(), tight)
    tree.save(tmp_path / "index")
    with pytest.raises(InputError, match=r"memory_gb is 0\.001"):
        ScannRetriever.load(tmp_path / "index", large, large_encoder, tight)


def test_k_below_one_is_refused(flat):
    with pytest.raises(InputError, match="k is 0"):
        flat.search(["x"], k=0)
