"""The run's directory: whose it is, and journals that survive being cut off."""

from __future__ import annotations

import json

import pytest

from rlsearch.errors import InputError
from rlsearch.training.workdir import Workdir
from tests import small


@pytest.fixture
def workdir(tmp_path) -> Workdir:
    workdir = Workdir(tmp_path / "run", writes=True)
    workdir.open(small.config())
    return workdir


def test_the_same_config_may_come_back(workdir):
    before = (workdir.path / "config.json").read_bytes()
    workdir.open(small.config())
    assert (workdir.path / "config.json").read_bytes() == before
    assert json.loads(before)["rl"]["steps"] == 5


def test_another_config_is_refused_and_the_keys_are_named(workdir):
    (workdir.path / "tokenizer").mkdir()
    other = small.config(**{"rl.steps": 6, "rl.batch.questions": 2})
    with pytest.raises(InputError, match=r"differ in config.rl.batch.questions, config.rl.steps\. Use another"):
        workdir.open(other)
    fewer = small.config()
    del fewer.rl.keep
    fewer.warmup = None
    with pytest.raises(InputError, match=r"config.rl.keep, config.warmup, config.warmup.attention"):
        workdir.open(fewer)
    workdir.open(small.config())


def test_a_run_that_failed_before_it_made_anything_has_no_claim(workdir):
    """The config with a wrong corpus path, corrected, goes into the same directory."""
    (workdir.path / "indexes").mkdir()
    workdir.open(small.config(**{"rl.steps": 6}))
    assert json.loads((workdir.path / "config.json").read_text())["rl"]["steps"] == 6


def test_a_mean_of_nothing_is_null_in_a_journal(workdir):
    """A NaN is no JSON: other readers would stop at it."""
    workdir.append("metrics.jsonl", {"stage": "rl", "step": 1, "reward": float("nan")})
    assert "NaN" not in (workdir.path / "metrics.jsonl").read_text()
    assert workdir.rows("metrics.jsonl") == [{"stage": "rl", "step": 1, "reward": None}]


def test_other_peoples_files_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(InputError, match=r"holds files but no config\.json, so it is no run"):
        Workdir(tmp_path, writes=True).open(small.config())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_may_begin_where_an_evaluation_left_its_indexes(tmp_path):
    (tmp_path / "indexes").mkdir()
    for name in ("episodes.jsonl", "evaluation.json"):
        (tmp_path / name).write_text("{}")
    Workdir(tmp_path, writes=True).open(small.config())
    assert (tmp_path / "config.json").exists()


def test_an_empty_directory_is_taken(tmp_path):
    Workdir(tmp_path, writes=True).open(small.config())
    assert (tmp_path / "config.json").exists()


def test_a_damaged_config_is_named_by_line(workdir):
    (workdir.path / "config.json").write_text("{\n  nothing")
    with pytest.raises(InputError, match=r"config.json:2: not JSON .* restore it"):
        workdir.open(small.config())


def test_rewinding_drops_what_a_resumed_stage_writes_again(workdir):
    rows = [{"stage": stage, "step": step} for stage in ("warmup", "rl") for step in (1, 2, 3)]
    for row in rows:
        workdir.append("metrics.jsonl", row)
    assert workdir.rows("metrics.jsonl") == rows
    workdir.rewind("metrics.jsonl", stage="rl", step=1)
    assert workdir.rows("metrics.jsonl") == rows[:4]
    workdir.rewind("evaluations.jsonl", stage="rl", step=0)
    assert workdir.rows("evaluations.jsonl") == []


@pytest.mark.parametrize("kept", [0, 2])
def test_a_line_cut_off_is_dropped_and_the_next_one_stands_alone(workdir, kept):
    rows = [{"stage": "rl", "step": step} for step in range(kept)]
    for row in rows:
        workdir.append("evaluations.jsonl", row)
    with (workdir.path / "evaluations.jsonl").open("a") as file:
        file.write('{"stage": "rl", "st')
    assert workdir.rows("evaluations.jsonl") == rows
    workdir.open(small.config())
    workdir.append("evaluations.jsonl", {"step": 9})
    assert workdir.rows("evaluations.jsonl") == [*rows, {"step": 9}]


def test_a_damaged_line_is_named(workdir):
    (workdir.path / "metrics.jsonl").write_text('{"stage": "rl", "step": 1}\nnoise\n')
    with pytest.raises(InputError, match=r"metrics.jsonl:2: not JSON .* delete this line"):
        workdir.rows("metrics.jsonl")


def test_only_one_process_writes(tmp_path):
    silent = Workdir(tmp_path / "run", writes=False)
    silent.open(small.config())
    silent.write_json("summary.json", {})
    silent.append("metrics.jsonl", {})
    silent.rewind("metrics.jsonl", stage="rl", step=0)
    assert not (tmp_path / "run").exists()


def test_json_appears_whole_or_not_at_all(workdir):
    workdir.write_json("rollouts/step_1.json", {"a": 1})
    with pytest.raises(TypeError):
        workdir.write_json("rollouts/step_1.json", {"a": object()})
    assert json.loads((workdir.path / "rollouts/step_1.json").read_text()) == {"a": 1}
