from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.envs.question_sets import load_questions
from rlsearch.envs.types import Question
from rlsearch.errors import InputError

ROW = {
    "id": "q1",
    "question": "Who wrote Niels Lyhne",
    "golden_answers": ["J. P. Jacobsen", "Jacobsen"],
    "supporting_ids": ["p1"],
    "supporting_complete": True,
    "hops": 1,
    "split": "dev",
    "origin": "elsewhere",
}


def write(folder: Path, *rows, name: str = "questions.jsonl") -> Path:
    path = folder / name
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def load(path: Path, split: str | None = None) -> list[Question]:
    return load_questions(path, source="hotpotqa", corpus="wiki", split=split)


def test_a_row_becomes_a_question(tmp_path):
    assert load(write(tmp_path, ROW), split="dev") == [
        Question(
            id="hotpotqa/q1",
            text="Who wrote Niels Lyhne?",
            answers=("J. P. Jacobsen", "Jacobsen"),
            supporting_ids=("p1",),
            hops=1,
            corpus="wiki",
        )
    ]


def test_fields_that_a_set_does_not_have_are_unknown(tmp_path):
    (question,) = load(write(tmp_path, {"id": "1", "question": " Why? ", "golden_answers": ["so"]}))
    assert (question.text, question.supporting_ids, question.hops) == ("Why?", (), 0)


def test_incomplete_evidence_is_unknown_evidence(tmp_path):
    (question,) = load(write(tmp_path, ROW | {"supporting_complete": False}))
    assert question.supporting_ids == ()


def test_a_split_keeps_its_rows_in_file_order(tmp_path):
    path = write(tmp_path, *[ROW | {"id": str(i), "split": "dev" if i % 3 else "train"} for i in range(7)], "")
    assert [q.id for q in load(path, split="dev")] == [f"hotpotqa/{i}" for i in (1, 2, 4, 5)]
    assert len(load(path)) == 7


@given(
    st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)).filter(lambda t: all(map(str.strip, t))), min_size=1)
)
def test_what_is_written_is_read(tmp_path_factory, texts):
    rows = [ROW | {"id": str(i), "question": q, "golden_answers": [a]} for i, (q, a) in enumerate(texts)]
    questions = load(write(tmp_path_factory.mktemp("set"), *rows))
    assert [q.answers for q in questions] == [(a.strip(),) for _, a in texts]
    assert [q.text.removesuffix("?") for q in questions] == [q.strip().removesuffix("?") for q, _ in texts]


def without(name: str) -> dict:
    return {key: value for key, value in ROW.items() if key != name}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "questions.jsonl: holds no question; needs one JSON object a line"),
        (("", "  "), "questions.jsonl: holds no question"),
        ((ROW, '{"id": "q2", "question"'), "questions.jsonl:2: not JSON in UTF-8"),
        ((ROW, "[1, 2]"), "questions.jsonl:2: [1, 2] (list) where an object"),
        ((ROW, ROW | {"id": "q2"}, ROW), "questions.jsonl:3: field 'id': 'q1' is also on line 1; remove one"),
        ((without("id"),), "questions.jsonl:1: field 'id': missing; the row has question, golden_answers"),
        ((without("question"),), "questions.jsonl:1: field 'question': missing"),
        ((ROW | {"question": "  "},), "questions.jsonl:1: field 'question': blank"),
        ((ROW | {"question": ["a"]},), "field 'question': [\"a\"] (list); needs text"),
        ((ROW | {"id": 7},), "field 'id': 7 (int); needs text in quotes"),
        ((without("golden_answers"),), "questions.jsonl:1: field 'golden_answers': missing"),
        ((ROW | {"golden_answers": []},), "field 'golden_answers': empty; needs at least one answer"),
        ((ROW | {"golden_answers": ["x", " "]},), "field 'golden_answers', item 1: blank"),
        ((ROW | {"golden_answers": "x"},), "field 'golden_answers': \"x\" (str); needs a list"),
        ((ROW | {"golden_answers": [None]},), "field 'golden_answers', item 0: null (NoneType)"),
        ((ROW | {"golden_answers": {"target": ["x"]}},), 'field \'golden_answers\': {"target": ["x"]} (dict)'),
        ((ROW | {"hops": "2"},), "field 'hops': \"2\" (str); needs a whole number"),
        ((ROW | {"hops": True},), "field 'hops': true (bool)"),
        ((ROW | {"hops": -1},), "field 'hops': -1"),
        ((ROW | {"supporting_ids": [1]},), "field 'supporting_ids', item 0: 1 (int)"),
        ((without("supporting_complete"),), "field 'supporting_complete': missing"),
        ((ROW | {"supporting_complete": "yes"},), "field 'supporting_complete': \"yes\" (str); needs true or false"),
        ((ROW | {"split": 3},), "field 'split': 3 (int)"),
    ],
)
def test_a_fault_names_file_line_and_field(tmp_path, rows, message):
    with pytest.raises(InputError) as error:
        load(write(tmp_path, *rows))
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent\.jsonl: no such file; set the path"):
        load(tmp_path / "absent.jsonl")


def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path):
    path = tmp_path / "latin.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b'\n{"id": "\xe9"}\n')
    with pytest.raises(InputError, match=r"latin\.jsonl:2: not JSON in UTF-8"):
        load(path)


def test_an_unknown_split_is_answered_with_those_there_are(tmp_path):
    path = write(tmp_path, ROW, ROW | {"id": "q2", "split": "train"}, ROW | {"id": "q3", "split": "train"})
    with pytest.raises(
        InputError, match=r"no row is 'test'; the file has 'dev' \(1 questions\), 'train' \(2 questions\)"
    ):
        load(path, split="test")
    with pytest.raises(InputError, match=r"questions\.jsonl:1: field 'split': missing"):
        load(write(tmp_path, without("split")), split="dev")
