"""What the launcher starts in its tests: ``python -m tests.launch.stub BEHAVIOUR... --coordinator=... --process=I``.

A behaviour is ``I:what``: process I does it, after the line that names its arguments.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time


def main(argv: list[str]) -> None:
    flags = dict(argument[2:].split("=", 1) for argument in argv if argument.startswith("--"))
    print("arguments", *argv)
    print("pid", os.getpid())
    for behaviour in (argument.split(":", 1) for argument in argv if not argument.startswith("--")):
        if behaviour[0] == flags["process"]:
            BEHAVIOURS[behaviour[1]](flags)


def fail(flags: dict[str, str]) -> None:
    print("before the end", file=sys.stderr)
    sys.exit(3)


def crash(flags: dict[str, str]) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(flags: dict[str, str]) -> None:
    time.sleep(600)


def deaf(flags: dict[str, str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    print("deaf")
    time.sleep(600)


def parent(flags: dict[str, str]) -> None:
    """Starts a child that would outlive it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("pid", child.pid)
    time.sleep(600)


def saves(flags: dict[str, str]) -> None:
    """Ends well when interrupted, as a training run that saves first."""
    try:
        print("waits")
        time.sleep(600)
    except KeyboardInterrupt:
        print("saved")
        sys.exit(0)


def progress(flags: dict[str, str]) -> None:
    sys.stdout.write("\r 10%\r 50%\r100%\nnot utf-8: ")
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\xff\n")
    sys.stdout.write("no newline at the end")


def total(flags: dict[str, str]) -> None:
    """Joins the others through jax and adds up what each holds."""
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    count, index = int(flags["processes"]), int(flags["process"])
    jax.distributed.initialize(flags["coordinator"], num_processes=count, process_id=index)
    held = multihost_utils.process_allgather(np.asarray(10**index))
    print("total", int(held.sum()), "of", jax.process_count())


BEHAVIOURS = {
    "fail": fail,
    "crash": crash,
    "hang": hang,
    "deaf": deaf,
    "parent": parent,
    "saves": saves,
    "progress": progress,
    "total": total,
}

if __name__ == "__main__":
    main(sys.argv[1:])
