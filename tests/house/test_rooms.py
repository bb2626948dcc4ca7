"""The way of the data: a room imports only rooms above it, and training is for the command line."""

from __future__ import annotations

import ast

from tests.house.files import ROOT, imports, modules

ROOMS = (
    "tree",
    "models",
    "tokenization",
    "search",
    "envs",
    "sampling",
    "rewards",
    "credit",
    "losses",
    "training",
    "evaluation",
    "interop",
    "report",
)


def room(parts: list[str]) -> str | None:
    """The room of ``rlsearch.room.module``, None for what stands outside all rooms."""
    return parts[1] if parts[0] == "rlsearch" and len(parts) > 1 and parts[1] in ROOMS else None


def faults(path: str, tree: ast.Module) -> list[str]:
    """What the module at ``path`` imports and must not."""
    here = room(path.removesuffix(".py").split("/"))
    found = []
    for line, name in imports(path, tree):
        parts = name.split(".")
        there = room(parts)
        if there == "training" and here not in (None, "training"):
            found.append(f"{path}:{line}: {here} imports {name}; only the command line may import training")
        elif here and there and ROOMS.index(there) > ROOMS.index(here):
            found.append(f"{path}:{line}: {here} imports {name}, a room below it; the order is {', '.join(ROOMS)}")
        elif here and parts[0] in ("configs", "launch", "tests", "notebooks"):
            found.append(f"{path}:{line}: {here} imports {name}; nothing in rlsearch/ may")
    return found


def test_a_room_imports_only_rooms_above_it():
    assert not [fault for path, tree in modules("rlsearch") for fault in faults(path, tree)]


def test_every_room_is_known_and_furnished():
    there = [path for path in (ROOT / "rlsearch").iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert not {path.name for path in there} - set(ROOMS), "a room without a place in the order"
    assert not [path.name for path in there if {module.name for module in path.glob("*.py")} <= {"__init__.py"}]


def test_the_check_sees_each_way_to_import():
    for bad in (
        "import rlsearch.losses.kl",
        "from rlsearch.losses import kl",
        "from rlsearch import losses",
        "from ..losses import kl",
        "from .. import losses",
        "def late():\n    import rlsearch.losses",
        "from rlsearch.training.step import step",
        "from configs import quickstart",
    ):
        assert len(faults("rlsearch/envs/worlds.py", ast.parse(bad))) == 1, bad
    assert faults("rlsearch/report/page.py", ast.parse("import rlsearch.training"))
    for good in (
        "import rlsearch.tree",
        "from rlsearch import errors, search",
        "from . import actions",
        "from .actions import parse",
        "import losses",
    ):
        assert not faults("rlsearch/envs/worlds.py", ast.parse(good)), good
    assert not faults("rlsearch/train.py", ast.parse("from rlsearch.training import loop"))
