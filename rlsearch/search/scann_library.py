"""The scann package: imported where it is used, with a clear error where it cannot be, and kept quiet."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from rlsearch.errors import InputError

LOG_LINE = re.compile(rb"^([IW]\d{4} |WARNING: All log messages before absl::InitializeLog)")


@functools.cache
def scann_ops() -> ModuleType:
    """The NumPy binding of ScaNN.

    Raises:
      InputError: the package is absent, or this processor lacks the instructions that it is compiled to.
    """
    instead = "use the exact retriever on this machine"
    missing = _missing_instructions()
    if missing:
        raise InputError(f"scann: this processor lacks {', '.join(missing)}, the library would crash; {instead}")
    try:
        return importlib.import_module("scann.scann_ops.py.scann_ops_pybind")
    except ImportError as error:
        raise InputError(
            f"scann cannot be imported ({error}); run: pip install scann (Linux, CPython 3.9 to 3.13), or {instead}"
        ) from error


def _missing_instructions() -> list[str]:
    cpu = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpu.is_file():
        return []
    flags = re.search(r"^flags\s*:(.*)$", cpu.read_text(), re.MULTILINE)
    return sorted({"avx", "fma"} - set(flags.group(1).split())) if flags else []


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Holds back what the library's C++ side logs to file descriptor 2 as information or warning; passes on the rest.

    The descriptor belongs to the process, so what another thread writes meanwhile appears late.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held, os.fdopen(os.dup(2), "wb") as terminal:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal.fileno(), 2)
            held.seek(0)
            terminal.writelines(line for line in held if not LOG_LINE.match(line))
