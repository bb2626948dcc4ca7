from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.exact import ExactRetriever
from rlsearch.search.light import TEXTS_AT_ONCE, LightEncoder, LightSettings, _signs, _split
from rlsearch.search.types import Passage
from tests.search.sentences import passages, questions

KARLON = [
    Passage("employer", "Karlon", "The employer of Karlon is Brimsted, as letters from Karlon say."),
    Passage("other", "Dorvan", "The mother of Dorvan is Karlon."),
    Passage("mother", "Karlon", "The mother of Karlon is Vesta."),
    Passage("far", "Brimsted", "The headquarters of Brimsted is Lund."),
]


@pytest.mark.parametrize("query", ["mother Karlon", "Karlon mother", "mother of Karlon", "KARLON's mother?"])
def test_relation_and_name_find_the_passage_about_them(light, query):
    corpus = Corpus.of(KARLON + passages(people=20, seed=2), "karlon")
    retriever = ExactRetriever.build(corpus, LightEncoder.fit(corpus.passages, light))
    (hits,) = retriever.search([query], k=3)
    assert hits.passages[0].id == "mother"
    (wrong,) = retriever.search(["employer Karlon"], k=1)
    assert wrong.passages[0].id == "employer"


def test_nearly_every_passage_is_found_by_its_relation_and_name(small, small_encoder):
    hits = ExactRetriever.build(small, small_encoder).search(questions(small.passages), k=1)
    found = [hit.passages[0] is passage for hit, passage in zip(hits, small.passages, strict=True)]
    assert np.mean(found) > 0.97


def test_pairs_are_what_tells_relations_of_one_name_apart(small, light):
    def found(settings):
        retriever = ExactRetriever.build(small, LightEncoder.fit(small.passages, settings))
        hits = retriever.search(questions(small.passages), k=1)
        return np.mean([hit.passages[0] is passage for hit, passage in zip(hits, small.passages, strict=True)])

    bare = LightSettings(width=light.width, title_weight=1.0, pair_weight=0.0)
    assert found(light) > found(LightSettings(light.width, light.title_weight, 0.0)) > found(bare)


def slow_vector(encoder, title, text, *, is_query):
    """The definition, word by word and pair by pair."""
    settings, known = encoder.settings, encoder._word_row
    heads, body = ({word for word in _split(part) if word in known} for part in (title, text))
    idf = {word: encoder._idf[known[word]] for word in heads | body}
    sign = {word: _signs([word], settings.width)[0].astype(float) for word in heads | body}
    total = np.zeros(settings.width)
    for word in heads | body:
        total += (settings.title_weight if word in heads else 1.0) * idf[word] * sign[word]
    left = body if is_query else heads
    for a, b in {tuple(sorted((a, b))) for a in left for b in body if a != b}:
        total += settings.pair_weight * np.sqrt(idf[a] * idf[b]) * sign[a] * sign[b]
    return total / (np.linalg.norm(total) or 1.0)


def test_fast_encoding_is_the_definition(small, small_encoder):
    rows = [*small.passages[:8], Passage("x", "", "no title here is Karlon"), Passage("y", "Babado", "zzz unknown")]
    slow = [slow_vector(small_encoder, p.title, p.text, is_query=False) for p in rows]
    np.testing.assert_allclose(small_encoder.encode_passages(rows), slow, atol=1e-5)
    asked = [*questions(small.passages[:8]), "", "mother mother mother", "the harbour of unknownword and mother"]
    slow = [slow_vector(small_encoder, "", text, is_query=True) for text in asked]
    np.testing.assert_allclose(small_encoder.encode_queries(asked), slow, atol=1e-5)


@given(st.lists(st.text(), max_size=4))
def test_vectors_have_length_one_or_none(small_encoder, texts):
    vectors = small_encoder.encode_queries([*texts, "mother harbour", ""])
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))
    assert lengths[-2:].tolist() == pytest.approx([1.0, 0.0])


def test_no_word_known_means_no_direction(small_encoder):
    unknown = [Passage("x", "Qqq", "Www xxx.")]
    assert not small_encoder.encode_passages(unknown).any()
    assert small_encoder.encode_queries([]).shape == (0, small_encoder.width)


def test_chunks_do_not_show(small, small_encoder):
    many = list(small.passages) * (TEXTS_AT_ONCE // len(small) + 2)
    vectors = small_encoder.encode_passages(many)
    np.testing.assert_allclose(
        vectors, small_encoder.encode_passages(small.passages)[np.arange(len(many)) % len(small)], atol=1e-6
    )


def test_the_same_in_another_process(small, small_encoder):
    code = (
        "import sys; from rlsearch.search.light import LightEncoder, LightSettings;"
        "from tests.search.sentences import passages;"
        "e = LightEncoder.fit(passages(people=60, seed=0), LightSettings(256, 3.0, 2.0));"
        "sys.stdout.write(e.name + ' ' + e.encode_queries(['mother harbour']).tobytes().hex())"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
    )
    name, vector = run.stdout.split()
    assert name == small_encoder.name
    assert vector == small_encoder.encode_queries(["mother harbour"]).tobytes().hex()


def test_signs_never_change():
    # A golden value: indexes on disk depend on it.
    assert _signs(["karlon"], 16)[0].tolist() == [-1, 1, -1, 1, -1, -1, 1, 1, -1, -1, 1, -1, -1, -1, -1, -1]


def test_name_tells_settings_and_passages_apart(small, large, light):
    names = {
        LightEncoder.fit(rows, settings).name
        for rows in (small.passages, small.passages[1:])
        for settings in (light, LightSettings(256, 3.0, 1.0), LightSettings(128, 3.0, 2.0))
    }
    assert len(names) == 6


@pytest.mark.parametrize("bad", [(0, 3.0, 2.0), (100, 3.0, 2.0), (256, 0.5, 2.0), (256, 3.0, -1.0)])
def test_bad_settings_are_refused(bad):
    with pytest.raises(InputError, match="light encoder"):
        LightSettings(*bad)
