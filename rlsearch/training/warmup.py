"""The warm-up: maximum likelihood of demonstrations, before reinforcement learning."""

from __future__ import annotations

import time
from dataclasses import dataclass

import jax
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from rlsearch.envs.traces import TracesConfig
from rlsearch.errors import InputError
from rlsearch.models import sharding
from rlsearch.models.decoder import DecoderConfig, Params
from rlsearch.training.checkpoint import open_checkpoints
from rlsearch.training.data import step_stream
from rlsearch.training.demonstrations import Demonstrator
from rlsearch.training.state import OptimizerConfig, fresh, make_optimizer
from rlsearch.training.step import make_supervised_step
from rlsearch.training.workdir import Workdir

STAGE = "warmup"


@dataclass(frozen=True)
class WarmupConfig:
    """How the policy is shown the form of an episode."""

    traces: TracesConfig
    steps: int
    rows: int  # of a step, over all processes
    row_tokens: int
    row_targets: int
    optimizer: OptimizerConfig
    log_every: int
    checkpoint_every: int
    keep: int  # checkpoints kept
    remat: bool


def warm_up(
    config: WarmupConfig,
    params: Params,
    *,
    model: DecoderConfig,
    demonstrator: Demonstrator,
    mesh: Mesh,
    workdir: Workdir,
) -> tuple[Params, float]:
    """Trains ``params`` on demonstrations; goes on from the newest checkpoint of the stage where there is one.

    Returns:
      The parameters, and the seconds that the stage took, those before an interruption included.

    Raises:
      InputError: a step that was not finite.
    """
    optimizer = make_optimizer(config.optimizer, steps=config.steps)
    state = fresh(params, optimizer, mesh)
    checkpoints = open_checkpoints(workdir.path / "checkpoints" / STAGE, keep=config.keep)
    spent = 0.0
    if checkpoints.latest() is not None:
        state, record = checkpoints.restore(state)
        spent = record["seconds"]
    begun = checkpoints.latest() or 0
    workdir.rewind("metrics.jsonl", stage=STAGE, step=begun)
    step = make_supervised_step(model, optimizer, mesh, remat=config.remat)
    stream = step_stream(demonstrator.rows, steps=config.steps, ahead=16)
    stream.set_state({"next_index": begun})
    clock = time.monotonic()
    with tqdm(total=config.steps, initial=begun, desc="warm-up", unit="step", disable=not workdir.writes) as bar:
        for number in range(begun + 1, config.steps + 1):
            state, metrics = step(state, sharding.to_global(jax.tree.map(_one_block, next(stream)), mesh), 1)
            bar.update()
            if number % config.log_every == 0:
                row = {name: float(value) for name, value in metrics.items()}
                if not row.pop("finite"):
                    raise InputError(
                        f"warm-up step {number}: loss {row['loss']} is not finite; lower the learning rate"
                    )
                bar.set_postfix(loss=f"{row['loss']:.3f}")
                workdir.append(
                    "metrics.jsonl", {"stage": STAGE, "step": number, "time": spent + time.monotonic() - clock, **row}
                )
            if number % config.checkpoint_every == 0 or number == config.steps:
                checkpoints.save(number, state, {"seconds": spent + time.monotonic() - clock})
    checkpoints.close()
    return state.params, spent + time.monotonic() - clock


def _one_block(leaf: np.ndarray) -> np.ndarray:
    return leaf[None]
