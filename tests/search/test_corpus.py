from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus, load_corpus, write_corpus
from rlsearch.search.types import Passage

GOOD = {"id": "a", "title": "Karlon", "text": "The mother of Karlon is Vesta."}
PLAIN = st.text(st.characters(exclude_categories=["Cs"]))


def written(tmp_path, *rows):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


@given(st.lists(st.tuples(PLAIN, PLAIN.filter(lambda text: text.strip())), min_size=1, max_size=5))
def test_what_is_written_is_read_back(tmp_path_factory, rows):
    corpus = Corpus.of([Passage(f"p{i}", title, text) for i, (title, text) in enumerate(rows)], "generated")
    path = tmp_path_factory.mktemp("corpus") / "deeper" / "corpus.jsonl"
    write_corpus(path, corpus)
    again = load_corpus(path)
    assert again.passages == corpus.passages
    assert again.digest == corpus.digest
    assert [file.name for file in path.parent.iterdir()] == ["corpus.jsonl"]


def test_search_r1_rows_are_read(tmp_path):
    path = written(tmp_path, {"id": "7", "contents": '"Ed "Big" Wood"\nA film.\nBy Tim Burton.'})
    assert load_corpus(path).passages == (Passage("7", 'Ed "Big" Wood', "A film.\nBy Tim Burton."),)


def test_other_fields_and_a_missing_last_line_end_do_no_harm(tmp_path):
    path = written(tmp_path, GOOD, json.dumps({**GOOD, "id": "b", "url": "x"}))
    assert [passage.id for passage in load_corpus(path).passages] == ["a", "b"]


def test_digest_depends_on_every_field_and_on_the_order():
    first, second = Passage("a", "t", "x"), Passage("b", "t", "y")
    rows = [
        (first, second),
        (second, first),
        (first,),
        (Passage("a", "tx", "x"), second),
        (Passage("a", "t", "z"), second),
    ]
    assert len({Corpus.of(row, "s").digest for row in rows}) == len(rows)
    assert Corpus.of(rows[0], "one place").digest == Corpus.of(rows[0], "another").digest


def test_row_of_finds_each_passage():
    corpus = Corpus.of([Passage(f"p{i}", "", "x") for i in range(5)], "s")
    assert all(corpus.passages[corpus.row_of[passage.id]] is passage for passage in corpus.passages)


FAULTS = {
    "an empty file": ([], "empty"),
    "a blank line": ([GOOD, "\n", {**GOOD, "id": "b"}], ":2: a blank line"),
    "malformed JSON": ([GOOD, '{"id": "b", "title\n'], ":2: malformed JSON, column 13"),
    "not an object": ([GOOD, "[1]\n"], ":2: a JSON list"),
    "no id": ([{"title": "t", "text": "x"}], ":1: no field 'id', found 'title', 'text'"),
    "no title": ([GOOD, {"id": "b", "text": "x"}], ":2: no field 'title'"),
    "no text": ([GOOD, {"id": "b", "title": "t"}], ":2: no field 'text'"),
    "a number for an id": ([{**GOOD, "id": 3}], ":1: field 'id' is 3, not a string"),
    "null for a text": ([{**GOOD, "text": None}], ":1: field 'text' is null, not a string"),
    "an empty id": ([{**GOOD, "id": ""}], ":1: field 'id' is empty"),
    "an empty text": ([GOOD, {**GOOD, "id": "b", "text": " \n"}], ":2: field 'text' of passage 'b' is empty"),
    "half a character": ([{**GOOD, "title": "\ud83d"}], ":1: field 'title' holds half of a surrogate pair"),
    "contents without a title": ([{"id": "a", "contents": "Karlon\nx"}], ":1: field 'contents' begins 'Karlon"),
    "contents of one line": ([{"id": "a", "contents": '"Karlon"'}], ":1: field 'contents' begins"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_rows_are_named(tmp_path, fault):
    rows, message = FAULTS[fault]
    path = written(tmp_path, *rows)
    with pytest.raises(InputError) as caught:
        load_corpus(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_duplicate_ids_name_both_lines(tmp_path):
    path = written(tmp_path, GOOD, {**GOOD, "id": "b"}, {**GOOD, "text": "another"})
    with pytest.raises(InputError, match=rf"{path}:3: field 'id' repeats 'a' of {path}:1"):
        load_corpus(path)


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n\xff\n")
    with pytest.raises(InputError, match=r"corpus.jsonl:2: byte 0xff is not UTF-8"):
        load_corpus(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.jsonl: no such file"):
        load_corpus(tmp_path / "nothing.jsonl")
    with pytest.raises(InputError, match="cannot be read"):
        load_corpus(tmp_path)


def test_passages_made_in_memory_are_checked_too():
    with pytest.raises(InputError, match="corpus world_1: empty"):
        Corpus.of([], "world_1")
    with pytest.raises(InputError, match="world_1: passage 2: field 'id' repeats 'a' of world_1: passage 1"):
        Corpus.of([Passage("a", "t", "x"), Passage("a", "t", "y")], "world_1")


def test_the_hotpotqa_subset_loads(hotpotqa_corpus):
    assert len(hotpotqa_corpus) == 14345
    assert hotpotqa_corpus.passages[0].title == "Ed Wood (film)"
