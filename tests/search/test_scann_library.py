from __future__ import annotations

import os
import sys

import pytest

from rlsearch.errors import InputError
from rlsearch.search import scann_library
from rlsearch.search.scann_index import ScannRetriever
from tests.search.test_scann_index import SETTINGS


@pytest.fixture
def fresh():
    scann_library.scann_ops.cache_clear()
    yield
    scann_library.scann_ops.cache_clear()


def test_an_absent_package_is_named_with_the_command(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "scann.scann_ops.py.scann_ops_pybind", None)
    with pytest.raises(InputError, match=r"pip install scann.*or use the exact retriever"):
        scann_library.scann_ops()


def test_a_processor_that_it_would_crash_on_is_named(fresh, monkeypatch):
    monkeypatch.setattr(scann_library, "_missing_instructions", lambda: ["avx", "fma"])
    with pytest.raises(InputError, match=r"lacks avx, fma.*use the exact retriever"):
        scann_library.scann_ops()


def test_quiet_holds_back_log_lines_and_nothing_else(capfd):
    with pytest.raises(RuntimeError), scann_library.quiet():
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
        os.write(2, b"I0000 00:00:1.5 1 a.cc:5] ran\nW0000 00:00:1.5 1 a.cc:5] zero norm\n")
        os.write(2, b"E0000 00:00:1.5 1 a.cc:5] trouble\nIndeed 3 things\n")
        raise RuntimeError
    os.write(2, b"I0000 after\n")
    assert capfd.readouterr().err.splitlines() == [
        "E0000 00:00:1.5 1 a.cc:5] trouble",
        "Indeed 3 things",
        "I0000 after",
    ]


def test_building_a_tree_writes_nothing(large, large_encoder, capfd, tmp_path):
    retriever = ScannRetriever.build(large, large_encoder, SETTINGS)
    retriever.save(tmp_path / "index")
    ScannRetriever.load(tmp_path / "index", large, large_encoder, SETTINGS)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
