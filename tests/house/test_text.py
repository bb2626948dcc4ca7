"""What the repository says is for whoever cloned it: no path of one machine, no host of a package registry."""

from __future__ import annotations

import re
import stat

import pytest

from tests.house.files import ROOT, files

# Spelt with brackets, so that this file does not say them either.
NOT_TO_BE_SAID = re.compile(
    r"(?<![\w.])/[w]ork\b|/tmp/[w]\b|/[h]ome/\w|/[r]oot/|py[p]i\.org|python[h]osted|\b[i]ssue #?\d"
)


def test_no_text_names_a_place_that_readers_do_not_have():
    found = []
    for path in files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # an image
        found += [
            f"{path.relative_to(ROOT)}:{n}: {line.strip()[:160]}" for n, line in enumerate(lines, 1) if said(line)
        ]
    assert not found


def said(line: str) -> bool:
    return NOT_TO_BE_SAID.search(line) is not None


@pytest.mark.parametrize("bad", ["in {}ork/main", "see '{}ork'", "/tmp{}/base", "fixes iss{} 12"])
def test_the_check_sees_what_it_is_for(bad):
    assert said(bad.format({"/tmp{}/base": "/w", "fixes iss{} 12": "ue"}.get(bad, "/w")))


@pytest.mark.parametrize("good", ["--workdir=runs/a", "../shared/data", "a/work/b", "tmp_path / 'w'"])
def test_the_check_lets_through(good):
    assert not said(good)


def test_a_clone_has_what_its_first_reader_looks_for():
    for name in ("README.md", "LICENSE", "Makefile", "setup.py", ".ci/run", "third_party/README.md"):
        assert (ROOT / name).is_file(), name
    assert (ROOT / ".ci/run").stat().st_mode & stat.S_IXUSR
    assert "Apache License" in (ROOT / "LICENSE").read_text()
