"""The warm-up learns, and stops where a step was not finite, also between two looks."""

from __future__ import annotations

import numpy as np
import pytest

from rlsearch import settings
from rlsearch.errors import InputError
from rlsearch.training import warmup
from rlsearch.training.state import TrainState
from rlsearch.training.workdir import Workdir
from tests import small


def test_it_learns_the_form_of_an_episode():
    losses = [row["loss"] for row in small.warmed().workdir.rows("metrics.jsonl")]
    assert losses[-1] < 2 < losses[0]


@pytest.mark.parametrize("bad", [4, 6])
def test_a_step_that_is_not_finite_stops_it(monkeypatch, tmp_path, bad):
    config, built = small.config(**{"warmup.steps": 9, "warmup.log_every": 3}), small.assembled()
    workdir = Workdir(tmp_path / "run", writes=True)
    workdir.open(config)
    number = iter(range(1, 100))

    def make(*args, **kwargs):
        def step(state, rows, blocks):
            if next(number) == bad:  # as the step answers where the loss is not finite
                return state, {"loss": np.nan, "grad_norm": np.nan, "finite": False}
            moved = TrainState(state.params, state.opt_state, state.step + 1)
            return moved, {"loss": 1.0, "grad_norm": 1.0, "finite": True}

        return step

    monkeypatch.setattr(warmup, "make_supervised_step", make)
    with pytest.raises(InputError, match=r"1 of the steps up to 6 were not finite.*Lower config\.warmup\.optimizer"):
        warmup.warm_up(
            settings.read(config).warmup, built.params, model=built.parts.policy.model, mesh=built.mesh,
            workdir=workdir, demonstrator=small.demonstrator(config, built.parts),
        )  # fmt: skip
    assert [row["step"] for row in workdir.rows("metrics.jsonl")] == [3]
