"""Files and functions stay short enough to be read; the training loop is one function on purpose."""

from __future__ import annotations

import ast

from tests.house.files import CODE, ROOT, modules

FILE_LINES = 500
FUNCTION_LINES = 80
LOOP = "rlsearch/training/loop.py"  # reads top to bottom in one place


def test_no_file_is_too_long():
    long = {path: len((ROOT / path).read_text().splitlines()) for path, _ in modules(*CODE)}
    assert not {path: lines for path, lines in long.items() if lines > FILE_LINES}


def test_no_function_is_too_long():
    """A config's ``get_config`` is one table of values, and left out."""
    found = [
        f"{path}:{node.lineno}: {node.name} has {length(node)} lines"
        for path, tree in modules(*CODE)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) > FUNCTION_LINES
        if path != LOOP and (node.name != "get_config" or not path.startswith("configs/"))
    ]
    assert not found


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return function.end_lineno - function.lineno + 1
