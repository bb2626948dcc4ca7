"""Greedy answers to held-out questions, and what they are worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from rlsearch.envs.tasks import Task
from rlsearch.envs.types import Question, State
from rlsearch.errors import InputError
from rlsearch.evaluation import metrics
from rlsearch.evaluation.episodes import Episodes
from rlsearch.evaluation.identity import identity
from rlsearch.models.decoder import Params
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.engine import Engine
from rlsearch.sampling.expanders.chains import Group
from rlsearch.sampling.grow import Grower, grow
from rlsearch.sampling.rollouts import POLICY, Scene


def answer(
    engine: Engine, scene: Scene, params: Mapping[str, Params], questions: Sequence[Question], *, done: int
) -> Iterator[list[State]]:
    """One greedy episode a question, in the order of the questions, in groups of ``group_size``.

    The first ``done`` questions are passed over; a multiple of that size leaves every group as it is without.
    """
    at_once = group_size(engine)
    off = jax.process_index() > 0
    with tqdm(total=len(questions), initial=done, desc="evaluating", unit="question", disable=off) as bar:
        for first in range(done, len(questions), at_once):
            states = greedy(engine, scene, params, questions[first : first + at_once])
            bar.update(len(states))
            yield states


def group_size(engine: Engine) -> int:
    """Questions that are answered before episodes are kept: several for each slot, so that slots are refilled."""
    return 4 * engine.sampling.slots[-1]


def greedy(engine: Engine, scene: Scene, params: Mapping[str, Params], questions: Sequence[Question]) -> list[State]:
    """One greedy episode a question, as many side by side as there are slots."""
    grower = Grower(engine, scene, params, jax.random.key(0), Draw(temperature=0.0), version=0, score=_unscored)
    return [episode.state for episode in grow(grower, Group(1), questions, np.random.default_rng(0)).episodes]


def resume(
    engine: Engine, scene: Scene, params: Mapping[str, Params], task: Task, *, config: ConfigDict, file: Path
) -> list[State]:
    """Greedy episodes of the held-out questions, each group kept in ``file`` as it ends; those there stay as they are.

    Raises:
      InputError: there is no held-out question, or ``file`` holds the episodes of another evaluation.
    """
    questions = task.heldout
    if not questions:
        raise InputError(
            "config.task has 0 held-out questions, so there is nothing to evaluate; raise heldout_questions, and for"
            " worlds the number of those held out"
        )
    of = identity(config, task, scene, params[POLICY])
    episodes = Episodes(file, of, questions, at_once=group_size(engine))
    states = episodes.read()
    for group in answer(engine, scene, params, questions, done=len(states)):
        states += episodes.append(group)
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
    states = list(chain.from_iterable(answer(engine, scene, params, questions, done=0)))
    return metrics.record(states, stage=stage, step=step, name=name)
