from __future__ import annotations

import dataclasses
import json

import pytest

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.light import LightEncoder, LightSettings
from rlsearch.search.scann_index import ScannRetriever
from rlsearch.search.scann_manifest import ScannSettings, estimated_gb
from tests.search.test_scann_index import SETTINGS


@pytest.fixture(scope="module")
def built(large, large_encoder):
    return ScannRetriever.build(large, large_encoder, SETTINGS)


@pytest.fixture
def saved(built, tmp_path):
    built.save(tmp_path / "index")
    return tmp_path / "index"


def refused(folder, built, message, **changes):
    kept = {"corpus": built.corpus, "encoder": built.encoder, "settings": SETTINGS} | changes
    with pytest.raises(InputError, match=message) as caught:
        ScannRetriever.load(folder, kept["corpus"], kept["encoder"], kept["settings"])
    assert str(folder) in str(caught.value)


def test_another_corpus_is_refused(saved, built, small):
    other = Corpus.of(built.corpus.passages[::-1], "reversed")
    refused(saved, built, f"another corpus than reversed.*{built.corpus.digest}.*{other.digest}", corpus=other)
    refused(saved, built, "another corpus than small", corpus=small)


def test_another_encoder_is_refused(saved, built, large):
    other = LightEncoder.fit(large.passages, LightSettings(256, 3.0, 1.0))
    refused(saved, built, f"another encoder.*{built.encoder.name}.*{other.name}", encoder=other)


def test_other_settings_are_refused_but_for_the_budget(saved, built):
    other = dataclasses.replace(SETTINGS, leaves_searched=7)
    refused(saved, built, "settings.leaves_searched is 20, expected 7", settings=other)
    richer = dataclasses.replace(SETTINGS, memory_gb=2.0)
    assert ScannRetriever.load(saved, built.corpus, built.encoder, richer).search(["x"], k=1)


def test_every_file_is_checked(built, tmp_path):
    built.save(tmp_path / "list")
    names = sorted(path.name for path in (tmp_path / "list").iterdir() if path.name != "index.json")
    assert {"dataset.npy", "hashed_dataset.npy", "scann_config.pb"} <= set(names)
    for name in names:
        folder = tmp_path / name
        built.save(folder)
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:-1])
        refused(folder, built, f"{name}: {len(data) - 1} bytes, index.json says {len(data)}; it was cut short")
        (folder / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        refused(folder, built, f"{name}: its SHA-256 is not the one in index.json")
        (folder / name).unlink()
        refused(folder, built, f"{name}: missing")


def test_a_bad_manifest_is_refused(saved, built, tmp_path):
    text = (saved / "index.json").read_text()
    (saved / "index.json").write_text(text[: len(text) // 2])
    refused(saved, built, "index.json: not whole JSON")
    (saved / "index.json").write_text(json.dumps({**json.loads(text), "format": 2}))
    refused(saved, built, "format is 2, this version reads 1")
    (saved / "index.json").write_text(json.dumps([1]))
    refused(saved, built, "format is None")
    (saved / "index.json").write_text(json.dumps({"format": 1}))
    refused(saved, built, "fields are")
    refused(tmp_path / "nowhere", built, "no index here")


def test_the_estimate_covers_vectors_and_codes():
    assert estimated_gb(1000, 256, SETTINGS) == pytest.approx(2 * 1000 * 256 * 4 / 2**30)
    assert estimated_gb(2**20, 256, SETTINGS) == pytest.approx(2 + 2**20 * 64 / 2**30 + 40 * 256 * 4 / 2**30)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"leaves_searched": 41}, "leaves_searched <= leaves"),
        ({"leaves_searched": 0}, "leaves_searched <= leaves"),
        ({"reorder": 0}, "positive"),
        ({"block_dimensions": 0}, "positive"),
        ({"brute_force_rows": 3}, "trees start above 1000 passages"),
        ({"leaves": 2000}, "above the number of leaves .2000."),
    ],
)
def test_settings_that_scann_would_crash_on_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        ScannSettings(**{**dataclasses.asdict(SETTINGS), **change})
