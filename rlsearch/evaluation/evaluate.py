"""Greedy answers to held-out questions, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
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
from rlsearch.sampling.grow import Grower, Scene, grow


def answer(engine: Engine, scene: Scene, params: Params, questions: Sequence[Question]) -> list[State]:
    """One greedy episode a question, as many side by side as the engine has slots; in the order of the questions."""
    states: list[State] = []
    at_once = engine.sampling.slots[-1]
    with tqdm(total=len(questions), desc="evaluating", unit="question", disable=jax.process_index() > 0) as bar:
        for first in range(0, len(questions), at_once):
            grower = Grower(engine, scene, params, key=jax.random.key(0), draw=Draw(temperature=0.0), version=0)
            trees = grow(grower, Group(1), questions[first : first + at_once], np.random.default_rng(0))
            states += [tree.episodes[0].state for tree in trees]
            bar.update(len(trees))
    return states


def evaluate(
    engine: Engine, scene: Scene, params: Params, questions: Sequence[Question], *, stage: str, step: int, name: str
) -> dict[str, Any]:
    """The evaluation record of a policy; see ``metrics.record``."""
    return metrics.record(answer(engine, scene, params, questions), stage=stage, step=step, name=name)
