"""How the command line ends where its input is bad: one line that says what and where, exit code 1, no traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlsearch.command import check_config
from rlsearch.errors import InputError

ROOT = Path(__file__).parents[1]
QUICKSTART = str(ROOT / "configs" / "quickstart.py")


def check(*arguments: str) -> None:
    check_config(["train.py", *arguments])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("rl.stepz=1", r"--config\.rl\.stepz: unknown key 'stepz'; did you mean 'steps'\?"),
        ("rel.steps=1", r"unknown key 'rel'; did you mean 'rl'\?"),
        ("rl.steps.more=1", r"unknown key 'more'"),
        ("warmup.optimizer.learningrate=1", r"did you mean 'learning_rate'\?"),
    ],
)
def test_an_unknown_key_is_named_with_its_nearest(override, said):
    for config in ([f"--config={QUICKSTART}"], ["--config", QUICKSTART]):
        with pytest.raises(InputError, match=said):
            check(*config, f"--config.{override}")


def test_known_keys_pass():
    check(f"--config={QUICKSTART}", "--config.rl.steps=1", "--config.task.worlds.hops[0]=2", "--workdir=x")
    check("--workdir=x")


def test_a_config_that_cannot_be_run_is_named_by_line(tmp_path):
    with pytest.raises(InputError, match=r"--config=nowhere\.py: no such file"):
        check("--config=nowhere.py")
    file = tmp_path / "mine.py"
    for text, said in (
        ("def get_config():\n    return ratee\n", r"mine\.py:2: NameError: name 'ratee' is not defined"),
        ("def get_config(:\n", r"mine\.py:1: SyntaxError"),
        ("import nowhere_at_all\n", r"mine\.py:1: ModuleNotFoundError"),
        ("def get_config():\n    return 3\n", r"get_config\(\) returns int, must be a ConfigDict"),
        ("x = 1\n", r"KeyError: 'get_config'"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=said):
            check(f"--config={file}")


def run(*arguments: str, module: str = "rlsearch.train") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([f"--config={QUICKSTART}", "--config.rl.stepz=1"], "error: --config.rl.stepz: unknown key"),
        ([f"--config={QUICKSTART}", "--config.credit.estimator=gruop"], "error: config.credit.estimator 'gruop'"),
        pytest.param(["--config=nowhere.py"], "error: --config=nowhere.py: no such file", marks=pytest.mark.slow),
        pytest.param([f"--config={QUICKSTART}", "left"], "unexpected arguments left", marks=pytest.mark.slow),
        pytest.param([f"--config={QUICKSTART}", "--seed=1"], "line flag 'seed'", marks=pytest.mark.slow),
        pytest.param([f"--config={QUICKSTART}", "--processes=2"], "same host:port", marks=pytest.mark.slow),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, said):
    code, output, errors = run(*arguments, f"--workdir={tmp_path / 'run'}")
    assert code == 1
    assert said in errors
    assert "Traceback" not in errors
    assert len(errors.strip().splitlines()) == 1
    assert not output
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_must_be_given_is_asked_for():
    code, _, errors = run(f"--config={QUICKSTART}")
    assert code == 1
    assert "--workdir must have a value" in errors


def evaluation(path: Path, *more: str) -> list[str]:
    """An evaluation of 80 questions, four at once."""
    return [
        sys.executable, "-m", "rlsearch.evaluate", "--config=tests/small_config.py", f"--workdir={path}",
        "--config.sampling.slots=(1,)", "--config.task.heldout_questions=40", *more,
    ]  # fmt: skip


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


@pytest.mark.slow
def test_an_evaluation_that_was_killed_goes_on_to_the_same_end(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    straight = subprocess.run(
        evaluation(tmp_path / "straight"), cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    killed, file = subprocess.Popen(evaluation(tmp_path / "run"), cwd=ROOT, env=environment), tmp_path / "run"
    while killed.poll() is None and lines(file / "episodes.jsonl") < 1 + 4:
        time.sleep(0.005)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert 1 + 4 <= lines(file / "episodes.jsonl") < 1 + 80
    assert not (file / "evaluation.json").exists()
    with (file / "episodes.jsonl").open("a") as journal:
        journal.write('{"question": {"id"')
    again = subprocess.run(evaluation(file), cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert "cut off after" in again.stderr and "of 80 questions are answered already" in again.stderr
    assert json.loads(again.stdout)["questions"] == 80
    assert again.stdout == straight.stdout
    for name in ("evaluation.json", "episodes.jsonl"):
        assert (file / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    for override, said in (
        ("sampling.max_turn_tokens=5", r"episodes\.jsonl: holds .* differ in config\.sampling\.max_turn_tokens\. Use"),
        ("task.heldout_questions=0", r"config\.task has 0 held-out questions"),
    ):
        code, output, errors = run(*evaluation(file, f"--config.{override}")[3:], module="rlsearch.evaluate")
        assert (code, output) == (1, "")
        assert re.search(rf"^error: .*{said}", errors, re.M), errors
        assert "Traceback" not in errors
