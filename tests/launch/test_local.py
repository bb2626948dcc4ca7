"""The launcher on real processes, which run tests/launch/stub.py."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch import group, local

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "launch.local", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def launch(*behaviours: str, processes: int = 2) -> tuple[int, str]:
    launcher = start("--processes", str(processes), "--module", "tests.launch.stub", "--", *behaviours)
    output, _ = launcher.communicate(timeout=120)
    return launcher.returncode, output


def until(launcher: subprocess.Popen, *wanted: str) -> str:
    """Reads the launcher's output until every wanted line was seen."""
    seen = ""
    for line in launcher.stdout:
        seen += line
        if all(f"{text}\n" in seen for text in wanted):
            return seen
    pytest.fail(f"the launcher ended before it wrote {wanted}:\n{seen}")


def alive(output: str) -> list[int]:
    """Those processes named in the output that still run; one that is dead and not yet waited for does not."""
    pids = [int(pid) for pid in re.findall(r"pid (\d+)", output)]
    assert pids
    return [pid for pid in pids if state(pid) not in ("gone", "Z")]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def test_each_process_gets_the_arguments_and_its_place():
    code, output = launch("--config=a b.py", processes=3)
    assert code == 0
    port = re.search(r"coordinator (127\.0\.0\.1:\d+)", output)[1]
    for process in range(3):
        assert (
            f"[{process}] arguments --config=a b.py --coordinator={port} --processes=3 --process={process}\n" in output
        )


def test_processes_join_through_jax():
    code, output = launch("0:total", "1:total")
    assert code == 0, output
    assert "[0] total 11 of 2\n" in output
    assert "[1] total 11 of 2\n" in output


def test_one_failure_stops_the_others_and_is_shown():
    code, output = launch("1:fail", "0:parent")
    assert code == 3
    assert not alive(output)
    last = output.partition("process 1 failed with exit code 3; stopped the others. Its last lines:\n")[2]
    assert last.endswith("  before the end\n")
    assert "[0]" not in last


def test_a_crash_counts_as_the_shell_counts_it():
    code, output = launch("0:crash", "1:hang")
    assert code == 128 + signal.SIGSEGV
    assert not alive(output)


def test_a_process_deaf_to_the_request_to_stop_is_killed(monkeypatch, capfd):
    monkeypatch.setattr(group, "GRACE_SECONDS", 0.5)
    monkeypatch.chdir(ROOT)
    code = local.main(["--processes=2", "--module=tests.launch.stub", "--", "0:deaf", "1:fail"])
    assert code == 3
    assert not alive(capfd.readouterr().out)


def test_ctrl_c_reaches_every_process():
    launcher = start("--processes=2", "--module=tests.launch.stub", "--", "0:saves", "1:saves")
    until(launcher, "[0] waits", "[1] waits")
    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0
    assert "[0] saved\n" in output
    assert "[1] saved\n" in output


def test_a_second_ctrl_c_kills():
    launcher = start("--processes=2", "--module=tests.launch.stub", "--", "0:deaf", "1:saves")
    seen = until(launcher, "[0] deaf", "[1] waits")
    launcher.send_signal(signal.SIGINT)
    seen += until(launcher, "[1] saved")
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + signal.SIGKILL
    assert not alive(seen)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is Linux's")
def test_a_launcher_that_is_killed_takes_its_processes_along():
    launcher = start("--processes=2", "--module=tests.launch.stub", "--", "0:deaf", "1:deaf")
    seen = until(launcher, "[0] deaf", "[1] deaf")
    launcher.kill()
    launcher.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while alive(seen) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(seen)


def test_lines_are_what_a_terminal_would_show():
    code, output = launch("0:progress", processes=1)
    assert code == 0
    assert "[0] 100%\n[0] not utf-8: \ufffd\n[0] no newline at the end\n" in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--processes=2"], "no -- found"),
        (["--", "--config=a"], "--processes"),
        (["--processes=0", "--"], "--processes is 0; it must be at least 1"),
        (["--processes=two", "--"], "invalid int value: 'two'"),
        (["--processes=2", "--config=a.py", "--"], "unrecognized arguments: --config=a.py"),
        (["--processes=2", "--", "--process=1"], "--process=1 after --: the launcher sets"),
        (["--processes=2", "--module=rlsearch.no_such", "--"], "--module rlsearch.no_such: no such module"),
        (["--processes=2", "--module=no_such.thing", "--"], "--module no_such.thing: no such module"),
    ],
)
def test_nonsense_is_refused_before_anything_starts(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        local.main(arguments)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert not captured.out
