"""Reading a run directory: every part optional, every fault named with its place."""

from __future__ import annotations

import json

import pytest

from rlsearch.errors import InputError
from rlsearch.report.read import read_run

NODE = {"parent": -1, "kind": "prompt", "text": "Q", "tokens": [], "reward": 1.0, "searches": 0}


def write_tree(run_dir, **changes):
    (run_dir / "rollouts").mkdir()
    tree = {"question": "Q", "answers": ["A"], "nodes": [NODE | changes]}
    (run_dir / "rollouts" / "step_000001.json").write_text(json.dumps({"step": 1, "trees": [tree]}))


def test_an_empty_directory_is_a_run_that_has_written_nothing(tmp_path):
    run = read_run(tmp_path)
    assert (run.config, run.summary, run.metrics, run.evaluations, run.snapshots) == (None, None, {}, [], [])


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such directory"):
        read_run(tmp_path / "nothing")


def test_a_malformed_line_is_named_by_file_and_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"stage": "rl", "step": 1}\n{"stage": \n{"stage": "rl", "step": 3}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl:2: not JSON"):
        read_run(tmp_path)


def test_a_last_line_that_is_still_being_written_is_left_out_and_noted(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"stage": "rl", "step": 1}\n{"stage": "rl", "st')
    run = read_run(tmp_path)
    assert len(run.metrics["rl"]) == 1
    assert run.notes == ("metrics.jsonl ends in an unfinished line (2), which is left out.",)


def test_of_a_step_written_twice_the_later_line_counts(tmp_path):
    lines = [{"stage": "rl", "step": step, "reward": reward} for step, reward in ((1, 0.1), (2, 0.2), (1, 0.9))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [line["reward"] for line in read_run(tmp_path).metrics["rl"]] == [0.9, 0.2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"step": 1}', r"metrics\.jsonl:1: no field 'stage'"),
        ('{"stage": "rl", "step": 1.5}', r"metrics\.jsonl:1: field 'step' is 1.5, needs int"),
        ('{"stage": "rl", "step": 1, "kl": "low"}', r"metrics\.jsonl:1: field 'kl' is \"low\", needs int or float"),
        ("[1]", r"metrics\.jsonl:1: '\[1\]' is not a JSON object"),
    ],
)
def test_a_line_with_a_wrong_field_is_named(tmp_path, line, message):
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match=message):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parent": 0}, r"step_000001\.json: trees\[0\]\.nodes\[0\]: parent is 0"),
        ({"kind": "thought"}, r"nodes\[0\]: kind is 'thought', needs one of prompt"),
        ({"tokens": [{"text": "a"}]}, r"nodes\[0\]\.tokens\[0\]: no field 'sampled'"),
        ({"reward": "1"}, r"nodes\[0\]: field 'reward'"),
    ],
)
def test_a_wrong_node_is_named(tmp_path, changes, message):
    write_tree(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        read_run(tmp_path)


def test_a_broken_evaluation_is_named(tmp_path):
    line = {"stage": "rl", "step": 0, "name": "heldout", "questions": 3, "exact_match": None, "searches": 1.0}
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match=r"evaluations\.jsonl:1: field 'exact_match' is null"):
        read_run(tmp_path)
