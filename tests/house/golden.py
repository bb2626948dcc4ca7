"""Every config as sorted ``key = value`` lines, kept beside the tests so that a changed value shows in review.

    python -m tests.house.golden      writes tests/house/golden/<config>.txt for every config

``configs/a/b.py`` goes to ``golden/a/b.txt``. Files and folders of configs/ whose names begin with an underscore hold
what several configs share and are none themselves.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.house.files import ROOT, files

CONFIGS = ROOT / "configs"
GOLDEN = ROOT / "tests" / "house" / "golden"
REWRITE = "python -m tests.house.golden"


def configs() -> list[str]:
    """Every config as its path below configs/, without the suffix: ``quickstart``, ``methods/tree_grpo``."""
    if not CONFIGS.is_dir():
        raise FileNotFoundError(f"{CONFIGS}: no such folder; rlsearch is run and tested from a clone that has it")
    names = [path.relative_to(CONFIGS).with_suffix("").as_posix() for path in files(CONFIGS, ".py")]
    return [name for name in names if not any(part.startswith("_") for part in name.split("/"))]


def load(name: str) -> Any:
    """What ``get_config()`` of the config returns, loaded from its file as ``--config=`` does."""
    path = CONFIGS / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"config_{name.replace('/', '_')}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise AttributeError(f"{path}: no get_config(); begin the name with _ if it holds what configs share")
    return module.get_config()


def expand(config: Mapping[str, Any]) -> str:
    """All leaves, one ``key.of.section = repr(value)`` a line, sorted by key."""
    return "".join(f"{key} = {value!r}\n" for key, value in sorted(leaves(config, "")))


def leaves(section: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Key and value of every leaf. An empty section is a leaf; sections in a list are numbered."""
    for key in section:
        yield from leaf(section[key], f"{where}{key}")


def leaf(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) or hasattr(value, "items"):
        yield from leaves(value, f"{where}.") if len(value) else [(where, {})]
    elif isinstance(value, list | tuple) and any(hasattr(item, "items") for item in value):
        for index, item in enumerate(value):
            yield from leaf(item, f"{where}[{index:02}]")
    else:
        yield where, value


def reviewed(name: str) -> str:
    """What is kept of a config: its expansion; of a method, the lines in which it differs from the quickstart."""
    lines = expand(load(name)).splitlines(keepends=True)
    if not name.startswith("methods/"):
        return "".join(lines)
    base = expand(load("quickstart")).splitlines(keepends=True)
    gone = {line.split(" = ")[0] for line in base} - {line.split(" = ")[0] for line in lines}
    return "".join(sorted([line for line in lines if line not in base] + [f"{key} is gone\n" for key in gone]))


def golden(name: str) -> Path:
    """Where the expansion of a config is kept."""
    return GOLDEN / f"{name}.txt"


def main() -> None:
    wanted = {golden(name): reviewed(name) for name in configs()}
    for path in set(GOLDEN.rglob("*.txt")) - set(wanted):
        path.unlink()
        print("removed", path.relative_to(ROOT))
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print("wrote", path.relative_to(ROOT))


if __name__ == "__main__":
    main()
