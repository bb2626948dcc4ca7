"""Every config loads, and says what it said when it was last reviewed."""

from __future__ import annotations

import difflib

import pytest
from ml_collections import ConfigDict

from rlsearch import settings
from tests.house.golden import CONFIGS, GOLDEN, REWRITE, configs, expand, golden, load, reviewed


@pytest.fixture(autouse=True)
def data_where_it_is_by_default(monkeypatch):
    """A config may say where the data lies by this variable; what was reviewed is without it."""
    monkeypatch.delenv("RLSEARCH_DATA", raising=False)


@pytest.mark.parametrize("name", configs())
def test_a_config_is_what_was_reviewed(name):
    path = golden(name)
    assert path.is_file(), f"configs/{name}.py has no expansion; {REWRITE} writes it"
    kept, now = path.read_text(), reviewed(name)
    if kept != now:
        changes = "".join(difflib.unified_diff(kept.splitlines(True), now.splitlines(True), "reviewed", "now", n=0))
        pytest.fail(f"configs/{name}.py changed. If that is meant, {REWRITE} and commit:\n{changes}", pytrace=False)


@pytest.mark.parametrize("name", [name for name in configs() if not name.startswith("methods/")])
def test_a_config_is_one_of_a_run(name):
    """Nothing is missing or left over; those of methods are read in tests/test_methods.py."""
    settings.read(load(name))


@pytest.mark.parametrize("name", configs())
def test_a_config_says_how_it_is_run(name):
    command = f"--config=configs/{name}.py"
    assert command in (CONFIGS / f"{name}.py").read_text(), f"configs/{name}.py: no {command} in its head"


def test_no_expansion_is_of_a_config_that_is_gone():
    assert set(GOLDEN.rglob("*.txt")) <= {golden(name) for name in configs()}, f"{REWRITE} removes what is left over"


def test_an_expansion_shows_every_leaf_and_its_type():
    config = ConfigDict({"b": {"two": 2, "one": 1.0, "none": None}, "a": "1", "empty": {}, "pair": (1, 2)})
    config.terms = [ConfigDict({"name": "kl", "weight": 0.1}), ConfigDict({"name": "clip"})]
    assert expand(config).splitlines() == [
        "a = '1'",
        "b.none = None",
        "b.one = 1.0",
        "b.two = 2",
        "empty = {}",
        "pair = (1, 2)",
        "terms[00].name = 'kl'",
        "terms[00].weight = 0.1",
        "terms[01].name = 'clip'",
    ]
