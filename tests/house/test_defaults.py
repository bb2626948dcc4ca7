"""A default value stands in configs/ or nowhere."""

from __future__ import annotations

import ast

import pytest

from tests.house.files import modules


def defaulted_fields(tree: ast.Module) -> list[tuple[int, str]]:
    """Fields with a default in classes that configs fill in, which are named ...Config."""
    return [
        (field.lineno, f"{node.name}.{ast.unparse(field.target)}")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config")
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and field.value is not None
        and "ClassVar" not in ast.unparse(field.annotation)
    ]


def quiet_lookups(tree: ast.Module) -> list[tuple[int, str]]:
    """``config.get(key, default)`` and ``getattr(config, key, default)``, whatever the config is called."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner = called.rpartition(".")[0] if called.endswith(".get") and len(node.args) == 2 else None
        if called == "getattr" and len(node.args) == 3:
            owner = ast.unparse(node.args[0])
        if owner and any(word in ("config", "cfg") for word in owner.split(".")):
            found.append((node.lineno, ast.unparse(node)))
    return found


@pytest.mark.parametrize("check", [defaulted_fields, quiet_lookups])
def test_no_default_outside_configs(check):
    assert not [f"{path}:{line}: {what}" for path, tree in modules("rlsearch") for line, what in check(tree)]


def test_the_checks_see_what_they_are_for():
    assert defaulted_fields(ast.parse("class StepConfig:\n    rate: float = 0.1\n    steps: int"))
    assert not defaulted_fields(ast.parse("class StepConfig:\n    rate: float"))
    assert quiet_lookups(ast.parse("x = self.config.get('rate', 0.1)"))
    assert quiet_lookups(ast.parse("x = getattr(cfg.model, 'rate', 0.1)"))
    assert not quiet_lookups(ast.parse("x = table.get('rate', 0.1)"))
