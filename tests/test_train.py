"""The small quickstart from start to end: what it leaves behind, and that interruptions change nothing."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import quickstart, quickstart_tree
from rlsearch import train
from rlsearch.errors import InputError
from rlsearch.interop.load import import_model
from rlsearch.search.corpus import load_corpus
from rlsearch.tokenization import loading
from rlsearch.training.checkpoint import open_checkpoints
from rlsearch.training.state import fresh, make_optimizer
from tests import small

ROOT = Path(__file__).parents[1]
TREE = {
    "expander": {"kind": "random_expansion", "trees": 2, "branches": 1, "rounds": 1},
    "credit": {"estimator": "tree_grpo", "scale": True, "drop_equal": True},
}
METRICS = {
    "reward", "exact_match", "searches", "loss", "kl", "clip_fraction", "entropy", "grad_norm", "logp_gap",
    "sampled_tokens", "tree_tokens", "path_tokens", "dropped_groups", "time",
}  # fmt: skip
# TensorStore reports a damaged checkpoint a second time, to nobody.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

folder = tempfile.TemporaryDirectory(prefix="rlsearch_train_")


def start(config, path: Path) -> dict[str, Any]:
    """Trains on one of the eight devices."""
    mesh = small.one_device()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.sharding, "make_mesh", lambda _: mesh)
        return train.train(config, path)


@functools.cache
def trained() -> tuple[Path, dict[str, Any]]:
    path = Path(folder.name) / "run"
    return path, start(small.config(), path)


@pytest.fixture
def run() -> Path:
    return trained()[0]


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_directory_holds_what_a_run_leaves(run):
    assert {path.name for path in run.iterdir()} == {
        "config.json", "metrics.jsonl", "evaluations.jsonl", "rollouts", "summary.json", "tokenizer", "corpora",
        "indexes", "checkpoints", "export", "report.html",
    }  # fmt: skip
    assert json.loads((run / "config.json").read_text())["rl"]["steps"] == 5


def test_every_step_is_in_the_metrics(run):
    found = rows(run / "metrics.jsonl")
    warmup, rl = ([row for row in found if row["stage"] == stage] for stage in ("warmup", "rl"))
    assert [row["step"] for row in warmup] == list(range(10, 61, 10))
    assert [row["step"] for row in rl] == [1, 2, 3, 4, 5]
    assert all(row.keys() >= METRICS for row in rl)
    assert all(math.isfinite(value) for row in found for value in row.values() if not isinstance(value, str))
    assert all(row["logp_gap"] < 1e-4 and row["tree_tokens"] < row["path_tokens"] for row in rl)
    assert all(left["time"] < right["time"] for left, right in itertools.pairwise(rl))


def test_before_and_after_are_evaluated_on_the_same_questions(run):
    before, after = rows(run / "evaluations.jsonl")
    assert [(row["step"], row["name"], row["questions"]) for row in (before, after)] == [
        (0, "heldout", 12),
        (5, "heldout", 12),
    ]
    assert set(before["by_hops"]) == {"1", "2", "3"}


def test_the_summary_says_what_came_of_it(run):
    summary = json.loads((run / "summary.json").read_text())
    assert [summary["before"], summary["after"]] == rows(run / "evaluations.jsonl")
    seconds = summary["seconds"]
    assert seconds["total"] == pytest.approx(sum(value for name, value in seconds.items() if name != "total"))
    assert 0.1 < summary["peak_gb"] < 64
    assert summary["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(import_model(run / "export")[1]))
    assert summary == json.loads(json.dumps(trained()[1]))


def test_rollouts_are_kept_as_the_report_reads_them(run):
    names = sorted(path.name for path in (run / "rollouts").iterdir())
    assert names == ["step_000001.json", "step_000002.json", "step_000004.json"]
    for tree in json.loads((run / "rollouts" / names[1]).read_text())["trees"]:
        nodes = tree["nodes"]
        assert (nodes[0]["kind"], nodes[0]["parent"], nodes[0]["reward"]) == ("prompt", -1, None)
        assert all(node["parent"] < index for index, node in enumerate(nodes))
        leaves = [node for index, node in enumerate(nodes) if index not in {other["parent"] for other in nodes}]
        assert len(leaves) == 4 == len([node for node in nodes if node["reward"] is not None])
        for node in nodes:
            assert node["text"] == "".join(token["text"] for token in node["tokens"])
            wrote = node["kind"] in ("search", "answer", "other")
            assert all(token["sampled"] == wrote == (token["logp"] is not None) for token in node["tokens"])


def test_the_export_is_the_trained_policy(run):
    built = small.assembled()
    optimizer = make_optimizer(train.settings.read(small.config()).rl.optimizer, steps=5)
    with open_checkpoints(run / "checkpoints" / "rl", keep=2) as checkpoints:
        assert checkpoints.latest() == 5
        state, _ = checkpoints.restore(fresh(built.params, optimizer, built.mesh))
    model, params = import_model(run / "export")
    assert model == built.parts.policy.model
    jax.tree.map(np.testing.assert_array_equal, params, jax.device_get(state.params))
    assert loading.load(run / "export").encode("The mayor of Rome") == loading.load(run / "tokenizer").encode(
        "The mayor of Rome"
    )


def test_corpora_lie_beside_the_run(run):
    task = small.assembled().parts.task
    for name in task.worlds:
        assert load_corpus(run / "corpora" / f"{name}.jsonl").passages == task.corpora[name].passages


def test_the_report_stands_alone(run):
    page = (run / "report.html").read_text()
    assert "quickstart" in page
    assert not re.search(r'(src|href)="http', page)


def test_the_table_shows_before_and_after(run, capsys):
    """A finished run started again computes nothing, and says the same."""
    before = {name: (run / name).read_bytes() for name in ("metrics.jsonl", "evaluations.jsonl")}
    start(small.config(), run)
    output = capsys.readouterr().out
    assert re.search(r"hops +questions +before +after +before +after", output)
    assert [line.split()[:2] for line in output.splitlines() if re.match(r"(all|1|2|3) ", line)] == [
        ["all", "12"], ["1", "4"], ["2", "4"], ["3", "4"],
    ]  # fmt: skip
    assert {name: (run / name).read_bytes() for name in before} == before


def test_the_directory_of_another_config_is_refused(run):
    before = sorted(path.stat().st_mtime_ns for path in run.rglob("*"))
    with pytest.raises(InputError, match=r"differ in config\.rl\.steps, config\.seed\. Use another --workdir"):
        start(small.config(**{"rl.steps": 6, "seed": 1}), run)
    assert sorted(path.stat().st_mtime_ns for path in run.rglob("*")) == before


def test_a_checkpoint_cut_short_is_named_and_an_older_one_serves(run, tmp_path):
    path = shutil.copytree(run, tmp_path / "run")
    newest = path / "checkpoints" / "rl" / "5"
    largest = max((file for file in newest.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
    with pytest.raises(InputError, match=re.escape(f"{newest}: this checkpoint cannot be read")):
        start(small.config(), path)
    shutil.rmtree(newest)
    assert start(small.config(), path)["after"] == trained()[1]["after"]
    assert untimed(path) == untimed(run)


def untimed(path: Path) -> list[dict[str, Any]]:
    found = [*rows(path / "metrics.jsonl"), *rows(path / "evaluations.jsonl")]
    return [{key: value for key, value in row.items() if key != "time"} for row in found]


def test_the_two_quickstarts_differ_in_data_alone():
    chain, tree = quickstart.get_config().to_dict(), quickstart_tree.get_config().to_dict()
    assert {key for key in chain | tree if chain.get(key) != tree.get(key)} <= {
        "name",
        "expander",
        "credit",
        "sampling",
    }
    chains, trees = (train.settings.read(module.get_config()) for module in (quickstart, quickstart_tree))
    method = {name: getattr(chains, name) for name in ("expander", "credit", "sampling")}
    assert dataclasses.replace(trees, **method) == chains
    assert (trees.credit.estimator.name, chains.credit.estimator.name) == ("tree_grpo", "grpo")


def test_tree_rollouts_run_through_the_same_loop(tmp_path):
    config = small.config(**{"warmup.steps": 30, "rl.steps": 2})
    config.update(TREE)
    del config.expander["size"]
    start(config, tmp_path / "run")
    tree = json.loads((tmp_path / "run" / "rollouts" / "step_000002.json").read_text())["trees"][0]
    assert sum(node["reward"] is not None for node in tree["nodes"]) == 2


def command(path: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "rlsearch.train", "--config=tests/small_config.py", f"--workdir={path}", *more]


def interrupt(path: Path, number: int, *, stage: str, step: int) -> tuple[int, str]:
    """Starts a run, sends a signal once a step is in its metrics; exit code and what it printed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what is ignored here would be ignored there
    process = subprocess.Popen(
        command(path), cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    metrics = path / "metrics.jsonl"
    while process.poll() is None:
        found = rows(metrics) if metrics.exists() and metrics.read_text().endswith("\n") else []
        if any(row["stage"] == stage and row["step"] >= step for row in found):
            process.send_signal(number)
            break
        time.sleep(0.02)
    output, _ = process.communicate(timeout=600)
    return process.returncode, output


@pytest.mark.slow
def test_killed_interrupted_and_started_again_by_command(tmp_path):
    subprocess.run(command(tmp_path / "straight"), cwd=ROOT, check=True, capture_output=True)
    code, _ = interrupt(tmp_path / "run", signal.SIGKILL, stage="warmup", step=20)
    assert code == -signal.SIGKILL
    code, output = interrupt(tmp_path / "run", signal.SIGINT, stage="rl", step=2)
    assert code == 1
    assert output.rstrip().endswith("interrupted: give the same command again to go on")
    assert "Traceback" not in output
    subprocess.run(command(tmp_path / "run"), cwd=ROOT, check=True, capture_output=True)
    assert untimed(tmp_path / "run") == untimed(tmp_path / "straight")
    exports = [import_model(tmp_path / name / "export")[1] for name in ("run", "straight")]
    jax.tree.map(np.testing.assert_array_equal, *exports)


@pytest.mark.slow
def test_two_processes_train_together(tmp_path):
    launched = subprocess.run(
        [sys.executable, "-m", "launch.local", "--processes", "2", "--", *command(tmp_path / "run")[3:]],
        cwd=ROOT, capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    assert launched.returncode == 0, launched.stdout
    found = rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in found if row["stage"] == "rl"] == [1, 2, 3, 4, 5]
    assert all(math.isfinite(value) for row in found for value in row.values() if not isinstance(value, str))
    assert all(row["logp_gap"] < 1e-4 for row in found if row["stage"] == "rl")
    # Demonstrations of two processes are other ones than those of one; what is learned is alike.
    alone = [row["loss"] for row in rows(trained()[0] / "metrics.jsonl") if row["stage"] == "warmup"]
    assert [row["loss"] for row in found if row["stage"] == "warmup"] == pytest.approx(alone, rel=0.2)


def test_equal_groups_are_computed_where_a_kl_is_taken_from_their_rewards():
    """Their outcomes agree, and their penalties do not."""
    config = small.config()
    parts = small.assembled().parts
    assert train.make_collector(train.settings.read(config), parts, share=1).drop_equal
    config.loss.kl = ConfigDict(
        {"coefficient": 0.1, "estimator": "k1", "place": "reward", "weights": {"kind": "uniform"}}
    )
    assert not train.make_collector(train.settings.read(config), parts, share=1).drop_equal
