"""Grain streams: shuffled questions, and the steps of a warm-up. Their state is an index, so resuming is exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grain

from rlsearch.envs.types import Question
from rlsearch.errors import InputError


def question_stream(
    questions: Sequence[Question], *, batch: int, seed: int, process: int, processes: int
) -> grain.DatasetIterator:
    """Batches of questions without end, reshuffled each pass; every process takes its own share of each batch.

    Raises:
      InputError: fewer questions than a batch, or a batch that does not divide among the processes.
    """
    if len(questions) < batch:
        raise InputError(
            f"{len(questions)} training questions do not fill a step of {batch}; lower config.rl.batch.questions"
        )
    if batch % processes:
        raise InputError(f"config.rl.batch.questions is {batch}, which does not divide among {processes} processes")
    share = batch // processes
    stream = grain.MapDataset.source(questions).shuffle(seed=seed).repeat().batch(batch, batch_fn=tuple)
    stream = stream.map(lambda whole: whole[process * share : (process + 1) * share])
    return iter(stream.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)))


def step_stream(make: Callable[[int], Any], *, steps: int, ahead: int) -> grain.DatasetIterator:
    """``make(0) .. make(steps - 1)``, computed up to ``ahead`` steps before they are asked for."""
    stream = grain.MapDataset.range(steps).map(make)
    return iter(stream.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=ahead)))
