"""Retrievers as a config names them: built once, read back, and never for another corpus."""

from __future__ import annotations

import pytest
from ml_collections import ConfigDict

from rlsearch.errors import InputError
from rlsearch.search import stores
from rlsearch.search.corpus import Corpus
from rlsearch.search.scann_index import ScannRetriever
from rlsearch.search.scann_manifest import MANIFEST
from tests import small
from tests.search.sentences import passages, questions

EXACT = {"kind": "exact"}


@pytest.fixture(scope="module")
def corpora() -> dict[str, Corpus]:
    return {name: Corpus.of(passages(people=30, seed=seed), name) for seed, name in enumerate(("one", "two"))}


def section(**index) -> ConfigDict:
    search = small.config().search
    search.index.update(index)
    return search


def exact() -> ConfigDict:
    search = small.config().search
    search.index = ConfigDict(EXACT)
    return search


def found(retrievers, corpora) -> dict[str, list[str]]:
    return {
        name: [hits.passages[0].id for hits in retrievers[name].search(questions(corpus.passages), k=3)]
        for name, corpus in corpora.items()
    }


@pytest.fixture
def opened(corpora, tmp_path):
    return stores.open_all(corpora, section(), tmp_path)


def test_each_corpus_is_searched_by_its_own_index(opened, corpora, tmp_path):
    assert found(opened, corpora) == {name: [p.id for p in corpus.passages] for name, corpus in corpora.items()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_what_was_built_is_read_back(opened, corpora, tmp_path, monkeypatch):
    before = found(opened, corpora)
    monkeypatch.setattr(ScannRetriever, "of_vectors", lambda *_: pytest.fail("built again"))
    assert found(stores.open_all(corpora, section(), tmp_path), corpora) == before


def test_exact_search_keeps_nothing_and_finds_the_same(opened, corpora, tmp_path):
    assert found(stores.open_all(corpora, exact(), tmp_path / "none"), corpora) == found(opened, corpora)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("what", ["corpus", "encoder", "index"])
def test_an_index_of_something_else_is_refused(opened, corpora, tmp_path, what):
    changed = dict(corpora)
    if what == "corpus":
        changed["two"] = Corpus.of(passages(people=30, seed=9), "two")
    search = section(leaves=50) if what == "index" else section()
    if what == "encoder":
        search.encoder.width = 256
    with pytest.raises(InputError, match=str(tmp_path)):
        stores.open_all(changed, search, tmp_path)
    assert (tmp_path / "two" / MANIFEST).exists()


def test_an_index_cut_short_is_refused(opened, corpora, tmp_path):
    largest = max((tmp_path / "one").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])
    with pytest.raises(InputError, match=str(tmp_path / "one")):
        stores.open_all(corpora, section(), tmp_path)


def test_what_an_interrupted_build_left_does_not_matter(opened, corpora, tmp_path):
    (tmp_path / "one").rename(tmp_path / "one.4711.partial")
    assert found(stores.open_all(corpora, section(), tmp_path), corpora) == found(opened, corpora)
    assert (tmp_path / "one" / MANIFEST).exists()


def test_files_that_are_no_index_are_left_alone(corpora, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "thesis.tex").write_text("dear")
    with pytest.raises(InputError, match=r"holds files but no index\.json"):
        stores.open_all(corpora, section(), tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("index", {"kind": "scan"}, r"config\.search\.index\.kind: 'scan' is unknown; did you mean 'scann'"),
        ("encoder", {"kind": "lite"}, r"config\.search\.encoder\.kind: 'lite' is unknown"),
        ("encoder", {"kind": "light", "width": 8}, r"config\.search\.encoder: missing title_weight, pair_weight"),
    ],
)
def test_a_section_that_does_not_fit_is_named(corpora, tmp_path, key, value, said):
    search = section()
    search[key] = ConfigDict(value)
    with pytest.raises(InputError, match=said):
        stores.open_all(corpora, search, tmp_path)
