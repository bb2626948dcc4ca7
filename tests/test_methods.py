"""Every method's config is short, says what it is, can be read, and is listed."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from rlsearch import methods, settings
from rlsearch.errors import InputError
from tests import small
from tests.house.files import ROOT

FOLDER = ROOT / "configs" / "methods"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.name.startswith("_"))
BASES = ("quickstart", "hotpotqa_smollm2")


def config(name: str, base: str = "quickstart"):
    return importlib.import_module(f"configs.methods.{name}").get_config(base)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_a_short_config_that_can_be_read(name):
    text = (FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 40
    head = text.split('"""')[1]
    assert "Changes:" in head
    assert "Not covered:" in head
    for base in BASES:
        settings.read(config(name, base))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_method_trains(name, tmp_path):
    """Two steps of the small run with the method's sections: every loss finite, and something moves."""
    small.trains(config(name), tmp_path)


def test_the_list_shows_every_method_once_and_its_choices():
    out = subprocess.run(
        [sys.executable, "-m", "rlsearch.methods"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split()[0] for line in out.splitlines() if line.startswith("  ") and not line.startswith("  python")]
    assert sorted(row for row in rows if row != "name") == NAMES
    assert "token ppo(high=0.2, low=0.2) + 0.001 k3 in loss, per sequence" in out
    assert "potential: answer_likelihood by reference(answers=gold, length=total, scale=log, several=max)" in out
    assert "group(size=8), merged within 0.001 nats" in out
    assert f"{len(NAMES)} methods" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "no such folder"), ("FAMILY = 'x'", "has no get_config"), ("def get_config(): ...", "has no FAMILY")],
)
def test_a_folder_that_cannot_be_listed_is_named(text, message, tmp_path):
    folder = tmp_path / "methods"
    if text is not None:
        folder.mkdir()
        (folder / "one.py").write_text(text)
    with pytest.raises(InputError, match=message):
        methods.methods(folder)
