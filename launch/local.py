"""Starts N processes of a training run on this machine, joined by ``jax.distributed``.

    python -m launch.local --processes 2 -- --config=configs/quickstart.py --workdir=runs/two

Everything after ``--`` goes to each process as it is, followed by ``--coordinator=127.0.0.1:PORT --processes=N
--process=I``. Each line that process I writes comes out as ``[I] line``. When one process fails, the others are stopped
and its last lines are shown again; Ctrl-C reaches all of them, and a second Ctrl-C kills them. The exit code is the
worst of those that the launcher did not stop itself, so 0 means that all succeeded.
"""

from __future__ import annotations

import argparse
import importlib.util
import socket
import sys
from collections.abc import Sequence

from launch.group import run

OURS = ("--coordinator", "--processes", "--process")


def main(argv: Sequence[str]) -> int:
    """Runs the command line; returns the exit code."""
    options, arguments = parse(argv)
    coordinator = f"127.0.0.1:{free_port()}"
    print(f"[launch] {options.processes} x {options.module}, coordinator {coordinator}", flush=True)
    return run([command(options, arguments, coordinator, process) for process in range(options.processes)])


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own options and the arguments after ``--``; ends the program with a message where they make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m launch.local",
        description="Starts N processes of a training run on this machine.",
        usage="%(prog)s --processes N [--module MODULE] -- ARGUMENTS",
        allow_abbrev=False,
    )
    parser.add_argument("--processes", type=int, required=True, help="how many processes to start, at least 1")
    parser.add_argument("--module", default="rlsearch.train", help="what each runs, as in python -m (%(default)s)")
    ours, found, arguments = split(argv)
    options = parser.parse_args(ours)
    if not found:
        parser.error("no -- found; the arguments of the training run follow it: -- --config=... --workdir=...")
    if options.processes < 1:
        parser.error(f"--processes is {options.processes}; it must be at least 1")
    for argument in arguments:
        if argument.split("=")[0] in OURS:
            parser.error(f"{argument} after --: the launcher sets {', '.join(OURS)} itself; leave it out")
    if not exists(options.module):
        parser.error(f"--module {options.module}: no such module; name one that python -m can run")
    return options, arguments


def split(argv: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """What stands before the first ``--``, whether there is one, and what stands after it."""
    at = argv.index("--") if "--" in argv else len(argv)
    return list(argv[:at]), at < len(argv), list(argv[at + 1 :])


def exists(module: str) -> bool:
    """Whether ``python -m module`` would find it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def command(options: argparse.Namespace, arguments: list[str], coordinator: str, process: int) -> list[str]:
    """The command line of one process."""
    joined = [f"--coordinator={coordinator}", f"--processes={options.processes}", f"--process={process}"]
    return [sys.executable, "-m", options.module, *arguments, *joined]


def free_port() -> int:
    """A TCP port of the loopback address that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
