"""Processes that live and die together, their output interleaved line by line."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

GRACE_SECONDS = 10.0  # between being asked to stop and being killed
POLL_SECONDS = 0.05
TAIL_LINES = 20
PR_SET_PDEATHSIG = 1  # prctl(2)
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: a child between fork and exec must not
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(commands: Sequence[Sequence[str]]) -> int:
    """Runs one process a command, all at once; returns the worst exit code.

    Signals in ``PASSED_ON`` go to every process. No process outlives this call.
    """
    group = Group()
    # Before the first process starts: an interrupt in between would leave it behind.
    previous = {number: signal.signal(number, lambda number, _: group.interrupt(number)) for number in PASSED_ON}
    try:
        group.start(commands)
        return group.wait()
    finally:
        group.kill()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _die_with_parent() -> None:
    """In a child, before it runs its command: on Linux the kernel kills it when the launcher dies of SIGKILL."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True)
class Member:
    """One process of the group, what it wrote last, and the thread that reads it."""

    index: int
    process: subprocess.Popen
    tail: deque[str]
    reader: threading.Thread

    def send(self, number: int) -> None:
        """Sends a signal to the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Group:
    """Processes whose lines are printed as ``[index] line``."""

    def __init__(self):
        self._interrupts = 0
        self._printing = threading.RLock()  # a signal handler may print while its own thread does
        self._members: list[Member] = []

    def start(self, commands: Sequence[Sequence[str]]) -> None:
        """Starts one process a command, unless an interrupt comes first."""
        for index, command in enumerate(commands):
            if not self._interrupts:
                self._members.append(self._start(index, command))

    def wait(self) -> int:
        """Waits for all; the first that fails ends the others.

        Returns:
          The worst exit code of those that ended by themselves or on a signal passed on; 128 + n for one that signal n
          ended, as a shell has it.
        """
        codes: dict[int, int] = {}
        while len(codes) < len(self._members):
            for member in self._members:
                code = member.process.poll()
                if member.index in codes or code is None:
                    continue
                codes[member.index] = code if code >= 0 else 128 - code
                if code and not self._interrupts:
                    self._fail(member, codes[member.index])
                    return max(codes.values())
            time.sleep(POLL_SECONDS)
        self._finish_reading()
        return max(codes.values(), default=128 + signal.SIGINT)

    def interrupt(self, number: int) -> None:
        """Passes a signal on to every process; the second time, kills them. Waits for nothing: it is a handler."""
        self._interrupts += 1
        if self._interrupts == 1:
            self._say(f"{signal.Signals(number).name}: passed on to all processes; once more kills them")
        for member in self._members:
            member.send(number if self._interrupts == 1 else signal.SIGKILL)

    def kill(self) -> None:
        """Kills what is left of every process and of what it started."""
        for member in self._members:
            member.send(signal.SIGKILL)
            member.process.wait()

    def _start(self, index: int, command: Sequence[str]) -> Member:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            preexec_fn=_die_with_parent,
            start_new_session=True,  # so that a signal can reach its whole family, and Ctrl-C comes from us alone
        )
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        reader = threading.Thread(target=self._read, args=(index, process, tail), daemon=True)
        reader.start()
        return Member(index, process, tail, reader)

    def _read(self, index: int, process: subprocess.Popen, tail: deque[str]) -> None:
        for raw in process.stdout:
            # A progress bar rewrites its line after each carriage return: only its last state is a line.
            line = raw.decode(errors="replace").rstrip("\r\n").rpartition("\r")[2]
            tail.append(line)
            self._print(f"[{index}] {line}")

    def _fail(self, failed: Member, code: int) -> None:
        others = [member for member in self._members if member.process.poll() is None]
        for member in others:
            member.send(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and any(member.process.poll() is None for member in others):
            time.sleep(POLL_SECONDS)
        self.kill()
        self._finish_reading()
        self._say(f"process {failed.index} failed with exit code {code}; stopped the others. Its last lines:")
        for line in failed.tail:
            self._print(f"  {line}")

    def _finish_reading(self) -> None:
        for member in self._members:
            member.reader.join(timeout=2.0)  # a grandchild that left the session may hold the pipe open

    def _say(self, message: str) -> None:
        self._print(f"[launch] {message}")

    def _print(self, line: str) -> None:
        with self._printing:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
