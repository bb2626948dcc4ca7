"""A run that was interrupted, wherever, and started again equals one that was not."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.training import stages
from tests.training.stages import Fuse

PLACES = {
    "warm-up step": (1, 11, 25),
    "rl step": (1, 2, 5),
    "writing": (1, 12),
    "journal": (2, 9, 15),
    "evaluation": (1, 2, 3),
    "checkpoint": (1, 3, 4, 5, 6),
}


@functools.cache
def run_straight() -> tuple[dict[str, Any], Fuse]:
    fuse = Fuse()
    with tempfile.TemporaryDirectory() as folder:
        return stages.run(Path(folder) / "run", fuse), fuse


@pytest.fixture
def straight():
    """Once for the module, and within a test: what is compiled under other settings is compiled again."""
    return run_straight()


def test_the_straight_run_is_worth_comparing(straight):
    """Both stages move, there are groups with a signal, and every place is passed often enough to be broken at."""
    found, fuse = straight
    rows = found["metrics.jsonl"]
    assert [row["step"] for row in rows] == [*range(3, 31, 3), *range(1, 6)]
    assert all(row["grad_norm"] > 0 and row["dropped_groups"] < 4 for row in rows[10:])
    assert [row["step"] for row in found["evaluations.jsonl"]] == [1, 2, 3, 4]
    assert all(fuse.passed[place] >= max(counts) for place, counts in PLACES.items())


@pytest.mark.parametrize(("place", "count"), [(place, count) for place in PLACES for count in PLACES[place]])
def test_interrupted_and_started_again(straight, tmp_path, place, count):
    with pytest.raises(KeyboardInterrupt):
        stages.run(tmp_path / "run", Fuse(place, count))
    stages.assert_same(stages.run(tmp_path / "run", Fuse()), straight[0])


def test_interrupted_again_and_again(straight, tmp_path):
    for place, count in (("warm-up step", 15), ("rl step", 2), ("writing", 12), ("evaluation", 2)):
        with pytest.raises(KeyboardInterrupt):
            stages.run(tmp_path / "run", Fuse(place, count))
    stages.assert_same(stages.run(tmp_path / "run", Fuse()), straight[0])


def test_a_finished_run_started_again_does_nothing(straight, tmp_path):
    stages.run(tmp_path / "run", Fuse())
    again = Fuse()
    stages.assert_same(stages.run(tmp_path / "run", again), straight[0])
    assert not again.passed
