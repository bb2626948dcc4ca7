"""Checkpoints with Orbax: the train state, and a JSON record of where the stage stands."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from rlsearch.errors import InputError
from rlsearch.training.state import TrainState


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one stage. ``save`` returns at once; the copy goes on in the background."""

    manager: ocp.CheckpointManager
    directory: Path

    def save(self, step: int, state: TrainState, record: dict[str, Any]) -> None:
        """Saves a state and its record under a step of the stage; every process calls it."""
        args = ocp.args.Composite(state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record))
        with _uninterrupted():
            self.manager.save(step, args=args)

    def latest(self) -> int | None:
        """The newest complete checkpoint; one that was interrupted does not count."""
        return self.manager.latest_step()

    def restore(self, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """The newest checkpoint, laid out as ``like``, and its record.

        Raises:
          InputError: it cannot be read; names the directory to delete, so that an older one is used.
        """
        step = self.latest()
        abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), like)
        args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), record=ocp.args.JsonRestore())
        try:
            found = self.manager.restore(step, args=args)
        except Exception as error:  # Orbax, TensorStore and JSON raise types of their own for damaged files
            raise InputError(
                f"{self.directory / str(step)}: this checkpoint cannot be read ({_first_line(error)}); delete that"
                f" directory to go on from an older one, or use another --workdir"
            ) from error
        return found["state"], found["record"]


@contextmanager
def open_checkpoints(directory: Path, *, keep: int) -> Iterator[Checkpoints]:
    """The checkpoints in ``directory``, the newest ``keep`` of them kept; leaving waits for copies under way.

    Where one of several processes fails, it does not wait: the others are not leaving.
    """
    options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
    manager = ocp.CheckpointManager(directory.absolute(), options=options)
    failed = True
    try:
        yield Checkpoints(manager, directory)
        failed = False
    finally:
        if not failed or jax.process_count() == 1:
            manager.wait_until_finished()
            manager.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Holds Ctrl-C back: Orbax's threads would wait minutes for a save that was broken off, and fail then."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[tuple] = []
    signal.signal(signal.SIGINT, lambda *arguments: caught.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if caught:
        handler(*caught[0])


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"[:300]
