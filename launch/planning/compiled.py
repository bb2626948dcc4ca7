"""Compiling a program for chips that are not there, also one that their memory has no room for."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax

_TOTAL = re.compile(r"^Total bytes: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """What a chip holds while it runs the program, in bytes, and the program's text.

    ``others`` are results that take no argument's place. The compiler refuses what does not fit (``refused``); then the
    size of its ``code`` is not known and 0.
    """

    text: str
    temporaries: int
    code: int
    others: int
    refused: bool


def compiled(function: Callable, arguments: tuple, donate: tuple[int, ...]) -> Compiled:
    """Compiles ``function`` for the chips that its arguments (shapes with a sharding) lie on."""
    lowered = jax.jit(function, donate_argnums=donate).lower(*arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = lowered.compile(compiler_options={"xla_dump_to": folder, "xla_dump_hlo_as_text": True})
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or "HBM" not in str(error).upper():
                raise
            return _refused(Path(folder))
    memory = done.memory_analysis()
    return Compiled(
        done.as_text(), int(memory.temp_size_in_bytes), int(memory.generated_code_size_in_bytes),
        int(memory.output_size_in_bytes - memory.alias_size_in_bytes), False,
    )  # fmt: skip


def _refused(folder: Path) -> Compiled:
    """What the compiler wrote down before it gave up: the program as it would have run, and what that takes."""
    [text] = folder.glob("*.after_optimizations.txt")
    [usage] = folder.glob("*.after_optimizations-memory-usage-report.txt")
    return Compiled(text.read_text(), int(_TOTAL.search(usage.read_text())[1]), 0, 0, True)
