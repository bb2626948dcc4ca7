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
    remat: str | bool
    attention: str  # one of attention.IMPLEMENTATIONS
    logp_chunk: int  # targets of a row whose logits are in memory at once; 0 for all


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
    with open_checkpoints(workdir.path / "checkpoints" / STAGE, keep=config.keep) as checkpoints:
        begun, spent = 0, 0.0
        if checkpoints.latest() is not None:
            state, record = checkpoints.restore(state)
            begun, spent = checkpoints.latest(), record["seconds"]
        workdir.rewind("metrics.jsonl", stage=STAGE, step=begun)
        step = make_supervised_step(
            model, optimizer, mesh, attention=config.attention, remat=config.remat, logp_chunk=config.logp_chunk
        )
        stream = step_stream(demonstrator.rows, steps=config.steps, ahead=16)
        stream.set_state({"next_index": begun})
        clock = time.monotonic()
        with tqdm(total=config.steps, initial=begun, desc="warm-up", unit="step", disable=not workdir.writes) as bar:
            for number in range(begun + 1, config.steps + 1):
                state, metrics = step(state, sharding.to_global(jax.tree.map(_one_block, next(stream)), mesh), 1)
                bar.update()
                if number % config.log_every == 0 or number == config.steps:
                    row = {name: float(value) for name, value in metrics.items()}
                    _stop_unless_finite(row, number, int(state.step))
                    bar.set_postfix(loss=f"{row['loss']:.3f}")
                    seconds = spent + time.monotonic() - clock
                    workdir.append("metrics.jsonl", {"stage": STAGE, "step": number, "time": seconds, **row})
                if number % config.checkpoint_every == 0 or number == config.steps:
                    checkpoints.save(number, state, {"seconds": spent + time.monotonic() - clock})
        return state.params, spent + time.monotonic() - clock


def _stop_unless_finite(row: dict[str, float], number: int, updates: int) -> None:
    """Also sees a step since the last look: it was not counted as an update."""
    if not row.pop("finite") or updates != number:
        raise InputError(
            f"warm-up: {number - updates} of the steps up to {number} were not finite (loss {row['loss']}, gradient"
            f" norm {row['grad_norm']}); their updates were not made. Lower config.warmup.optimizer.learning_rate"
        )


def _one_block(leaf: np.ndarray) -> np.ndarray:
    return leaf[None]
