"""Search-R1's rows become questions, and what cannot be one is refused by line and field."""

from __future__ import annotations

import json

import pytest

from rlsearch.envs.question_sets import load_questions
from rlsearch.errors import InputError
from third_party.search_r1 import convert


def row(source="nq", index=5, target=("Paris",)):
    prompt = "Answer. For example, <answer> Beijing </answer>. Question: what is the capital of france?\n"
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": list(target)}},
        "extra_info": {"split": "train", "index": index},
    }


def write(path, rows):
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def test_rows_are_read_back_as_questions_and_equal_indices_of_two_sets_stay_apart(tmp_path):
    source = write(tmp_path / "rows.jsonl", [row("nq", 5), row("hotpotqa", 5, ("yes", "Yes."))])
    assert convert(source, tmp_path / "questions.jsonl") == 2
    first, second = load_questions(tmp_path / "questions.jsonl", source="mix", corpus="wiki", split="train")
    assert (first.id, second.id) == ("mix/nq-train-5", "mix/hotpotqa-train-5")
    assert first.text == "what is the capital of france?"
    assert second.answers == ("yes", "Yes.")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"reward_model": {"style": "rule"}}, "reward_model.ground_truth"),
        ({"reward_model": {"ground_truth": {"target": []}}}, "reward_model.ground_truth.target"),
        ({"prompt": []}, "prompt.0"),
        ({"prompt": [{"content": "what?"}]}, "Question:"),
        ({"extra_info": {"split": "train"}}, "extra_info.index"),
    ],
)
def test_a_row_that_lacks_something_is_refused_by_line_and_field(tmp_path, change, named):
    source = write(tmp_path / "rows.jsonl", [row(), row() | change])
    with pytest.raises(InputError, match=r"rows\.jsonl:2") as refused:
        convert(source, tmp_path / "questions.jsonl")
    assert named in str(refused.value)
    assert not (tmp_path / "questions.jsonl").exists()


def test_files_that_hold_nothing_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        convert(tmp_path / "none.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="empty"):
        convert(write(tmp_path / "rows.jsonl", []), tmp_path / "out.jsonl")
