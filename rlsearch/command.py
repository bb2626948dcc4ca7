"""How commands read their flags and how they end: bad input is one clear line and exit code 1, never a traceback."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import app, flags, logging
from ml_collections import ConfigDict

from rlsearch.errors import InputError, nearest


def run(main: Callable[[], None], *, required: Sequence[str] = ("config", "workdir")) -> None:
    """Runs ``main`` with the flags parsed, of which those that are ``required`` must be given."""
    flags.mark_flags_as_required(list(required))
    app.run(lambda argv: _one_line(main), flags_parser=lambda argv: _one_line(lambda: parse(argv)))


def parse(argv: Sequence[str]) -> list[str]:
    """Parses flags and overrides of config values.

    Raises:
      InputError: a flag or a key is unknown (the nearest is named), a value does not fit, or the config cannot be read.
    """
    check_config(argv)
    try:
        rest = flags.FLAGS(argv)
    except flags.Error as error:
        raise InputError(" ".join(str(error).split())) from error
    if len(rest) > 1:
        raise InputError(f"unexpected arguments {' '.join(rest[1:])}; settings are given as --config.key=value")
    return rest


def check_config(argv: Sequence[str]) -> None:
    """Checks that the config file can be run and that it has every key that is overridden.

    Raises:
      InputError: what is wrong, with file and line or with the key.
    """
    given = re.search(r"(?:^|\n)--?config(?:=|\n)(.+)", "\n".join(argv[1:]))
    if given is None:
        return
    config = _load(*given[1].split(":", 1))
    for argument in argv[1:]:
        if override := re.match(r"--?(?:no)?config\.([^=]+)", argument):
            _check_key(config, override[1])


def _load(file: str, *arguments: str) -> ConfigDict:
    if not Path(file).is_file():
        raise InputError(f"--config={file}: no such file; give one such as configs/quickstart.py")
    try:
        config = runpy.run_path(file)["get_config"](*arguments)
    except Exception as error:  # whatever a config's own code raises
        raise InputError(f"{file}:{_line(error, file)}: {type(error).__name__}: {error}; mend the config") from error
    if not isinstance(config, ConfigDict):
        raise InputError(f"{file}: get_config() returns {type(config).__name__}, must be a ConfigDict")
    return config


def _line(error: Exception, file: str) -> int:
    """The last line of ``file`` that the error came through; 0 where it came from elsewhere."""
    line = error.lineno or 0 if isinstance(error, SyntaxError) else 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _check_key(config: ConfigDict, path: str) -> None:
    section = config
    for part in path.split("."):
        name = part.partition("[")[0]
        if not isinstance(section, ConfigDict) or name not in section:
            known = section.keys() if isinstance(section, ConfigDict) else ()
            raise InputError(f"--config.{path}: unknown key {name!r}{nearest(name, known)}")
        section = section[name]


def _one_line(work: Callable):
    logging.set_verbosity(logging.WARNING)  # Orbax reports every write
    try:
        return work()
    except InputError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: give the same command again to go on")
