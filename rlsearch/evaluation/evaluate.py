"""Greedy answers to held-out questions, and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from rlsearch.envs.types import Question, State
from rlsearch.evaluation import metrics
from rlsearch.models.decoder import Params
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.engine import Engine
from rlsearch.sampling.expanders import Group
from rlsearch.sampling.grow import Grower, grow
from rlsearch.sampling.rollouts import Scene


def answer(engine: Engine, scene: Scene, params: Mapping[str, Params], questions: Sequence[Question]) -> list[State]:
    """One greedy episode a question, as many side by side as the engine has slots; in the order of the questions."""
    states: list[State] = []
    at_once = 8 * engine.sampling.slots[-1]
    with tqdm(total=len(questions), desc="evaluating", unit="question", disable=jax.process_index() > 0) as bar:
        for first in range(0, len(questions), at_once):
            grower = Grower(engine, scene, params, jax.random.key(0), Draw(temperature=0.0), version=0, score=_unscored)
            grown = grow(grower, Group(1), questions[first : first + at_once], np.random.default_rng(0))
            states += [episode.state for episode in grown.episodes]
            bar.update(len(grown.episodes))
    return states


def _unscored(state: State) -> float:
    raise ValueError("no expander of an evaluation asks what an episode has earned")


def evaluate(
    engine: Engine,
    scene: Scene,
    params: Mapping[str, Params],
    questions: Sequence[Question],
    *,
    stage: str,
    step: int,
    name: str,
) -> dict[str, Any]:
    """The evaluation record of a policy; see ``metrics.record``."""
    return metrics.record(answer(engine, scene, params, questions), stage=stage, step=step, name=name)
