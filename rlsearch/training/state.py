"""What training carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Int

from rlsearch.errors import InputError, nearest
from rlsearch.models import sharding
from rlsearch.models.decoder import Params


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Parameters, optimizer state and the number of updates made; and the same of a critic, where there is one."""

    params: Params
    opt_state: Any
    step: Int[Array, ""]
    critic: TrainState | None = None


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with a warm-up, and a learning rate that then stays or falls to zero along a cosine."""

    learning_rate: float
    warmup_steps: int
    schedule: str  # "constant" or "cosine"
    b1: float
    b2: float
    weight_decay: float
    clip_norm: float  # global norm of the gradient at most

    def __post_init__(self):
        if self.schedule not in SCHEDULES:
            raise InputError(f"optimizer schedule {self.schedule!r}: unknown{nearest(self.schedule, SCHEDULES)}")


# name: a function of (learning rate, updates after the warm-up)
SCHEDULES = {
    "constant": lambda rate, steps: optax.constant_schedule(rate),
    "cosine": lambda rate, steps: optax.cosine_decay_schedule(rate, steps),
}


def make_optimizer(config: OptimizerConfig, *, steps: int) -> optax.GradientTransformation:
    """The optimizer of a stage of ``steps`` updates."""
    after = SCHEDULES[config.schedule](config.learning_rate, max(steps - config.warmup_steps, 1))
    rise = optax.linear_schedule(0.0, config.learning_rate, max(config.warmup_steps, 1))
    schedule = optax.join_schedules([rise, after], [config.warmup_steps])
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.adamw(schedule, b1=config.b1, b2=config.b2, weight_decay=config.weight_decay),
    )


def fresh(
    params: Params, optimizer: optax.GradientTransformation, mesh: Mesh, *, critic: TrainState | None = None
) -> TrainState:
    """A state at step 0, laid out over the mesh by the sharding table. It owns its buffers: a step may donate them."""
    params = jax.device_put(jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), params), sharding.shard(params, mesh))
    opt_state = jax.jit(optimizer.init, out_shardings=sharding.shard(jax.eval_shape(optimizer.init, params), mesh))(
        params
    )
    return TrainState(params, opt_state, jax.device_put(jnp.int32(0), sharding.replicated(mesh)), critic)
