"""The repository's own files, as the tests of this folder see them: what a clone has, not what was made in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
HIDDEN_AND_KEPT = {".ci", ".gitignore"}
MADE = {"runs", "build", "__pycache__"}
CODE = ("rlsearch", "configs", "launch", "notebooks", "tests", "third_party")


def files(under: Path = ROOT, suffix: str = "") -> Iterator[Path]:
    """Every file of the repository below ``under`` whose name ends in ``suffix``, sorted."""
    for path in sorted(under.iterdir()):
        hidden = path.name.startswith(".") and path.name not in HIDDEN_AND_KEPT
        if hidden or path.name in MADE or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from files(path, suffix)
        elif path.name.endswith(suffix):
            yield path


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Path from the root and syntax tree of every Python file in these folders."""
    for folder in folders:
        if (ROOT / folder).is_dir():
            for path in files(ROOT / folder, ".py"):
                yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(), str(path))


def imports(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of all that a module imports, wherever in it the import stands.

    ``from a import b`` gives ``a.b``, which is a module or a name in one.
    """
    package = path.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            for name in node.names:
                yield node.lineno, ".".join([*base, *([node.module] if node.module else []), name.name])
