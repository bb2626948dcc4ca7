"""Forests through the public policy step, with the gradient as its result."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from rlsearch.credit import registry
from rlsearch.losses import policy
from rlsearch.models import sharding
from rlsearch.models.decoder import Params
from rlsearch.models.sharding import MeshConfig
from rlsearch.training.state import fresh
from rlsearch.training.step import StepConfig, make_policy_step
from rlsearch.tree.forest import Forest, Nodes, Rows
from rlsearch.tree.pack import pack, pad_nodes
from tests.models import small

# Makes no update; its state after a step is the gradient.
GRADIENT = optax.GradientTransformation(
    init=lambda params: jax.tree.map(jax.numpy.zeros_like, params),
    update=lambda grads, state, params: (jax.tree.map(jax.numpy.zeros_like, grads), grads),
)
BLOCKS, NODES = 64, 128  # one compilation serves every forest; idle blocks cost nothing


LOSS = {
    "level": "token", "clip": {"kind": "ppo", "low": 0.2, "high": 0.3}, "mismatch": None,
    "reduction": {"kind": "token"},
    "kl": {"coefficient": 0.1, "estimator": "k3", "place": "loss", "weights": {"kind": "uniform"}}, "entropy": 0.05,
    "terms": (),
}  # fmt: skip


def config(estimator: str, reduction: str, *, drop_equal: bool = True) -> StepConfig:
    """Everything that makes the loss at once: narrow clips, KL, entropy, a temperature."""
    return make({"estimator": estimator, "scale": True, "drop_equal": drop_equal}, {"reduction": {"kind": reduction}})


def make(credit: dict, loss: dict, *, trunk: str = "own") -> StepConfig:
    """A step with the credit of a config's section and LOSS with some of its keys changed; ``trunk`` is a critic's."""
    return StepConfig(
        model=small.config(),
        credit=registry.read(ConfigDict(credit)),
        loss=policy.read(ConfigDict({**LOSS, **loss})),
        weights=(1.0, 0.5),
        temperature=0.7,
        remat=False,
        attention="dense",
        lora=None,
        logp_chunk=4,  # does not divide the targets of a row; the twin by paths has every logit at once
        critic_trunk=trunk,
    )


def mesh(data: int = 1, fsdp: int = 1, sequence: int = 1, model: int = 1) -> jax.sharding.Mesh:
    sizes = data, fsdp, sequence, model
    return sharding.make_mesh(MeshConfig(*sizes), jax.devices()[: math.prod(sizes)])


compiled = functools.cache(make_policy_step)


def batch(forest: Forest, *, width: int, targets: int, block: int) -> tuple[Rows, int, Nodes]:
    """Rows in BLOCKS blocks of ``block``; those that are not used repeat the last one, and must not count."""
    rows = pack(forest, width=width, targets=targets, multiple=block).rows
    used = len(rows.token_id) // block
    rows = jax.tree.map(lambda leaf: leaf.reshape(used, block, *leaf.shape[1:]), rows)
    rows = jax.tree.map(lambda leaf: np.concatenate([leaf, np.repeat(leaf[-1:], BLOCKS - used, axis=0)]), rows)
    return rows, used, pad_nodes(forest.nodes, NODES, leaves=128, depth=4, fan=32)


def loss_and_gradient(
    params: Params, reference: Params, forest: Forest, step: StepConfig, mesh, *, old: np.ndarray | None = None,
    critic: Params | None = None, **shape: int,
) -> tuple[float, Params]:  # fmt: skip
    gradient, metrics, _ = take(params, reference, forest, step, mesh, old=old, critic=critic, **shape)
    return float(metrics["loss"]), gradient


def take(
    params: Params, reference: Params, forest: Forest, step: StepConfig, mesh, *, old: np.ndarray | None = None,
    critic: Params | None = None, **shape: int,
):  # fmt: skip
    """The gradient, the metrics and the credit of one step.

    ``old`` are log-probabilities of the forest's tokens before the first update; without them they are the sampler's.
    With a critic the gradient is {"policy": ..., "critic": ...}.
    """
    rows, used, nodes = batch(forest, **shape)
    old_logp = None if old is None else batch(replace(forest, behavior_logp=old), **shape)[0].behavior_logp
    state = fresh(params, GRADIENT, mesh, critic=critic and fresh(critic, GRADIENT, mesh))
    reference = jax.device_put(reference, sharding.shard(reference, mesh)) if step.start else None
    optimizers = {"critic_optimizer": GRADIENT} if critic is not None else {}
    state, metrics, credit = compiled(step, GRADIENT, mesh, **optimizers)(
        state, reference, sharding.to_global(rows, mesh), used, nodes, sharding.to_global(old_logp, mesh)
    )
    gradient = state.opt_state if critic is None else {"policy": state.opt_state, "critic": state.critic.opt_state}
    return jax.tree.map(np.asarray, gradient), metrics, credit


def assert_equal(found: tuple[float, Params], expected: tuple[float, Params]) -> None:
    """Loss to 1e-5 and gradient to 1e-4, relative; each leaf apart, as far as it weighs anything."""
    scale = sum(float(np.square(leaf).sum()) for leaf in jax.tree.leaves(expected[1])) ** 0.5
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for (path, got), want in zip(
        jax.tree_util.tree_flatten_with_path(found[1])[0], jax.tree.leaves(expected[1]), strict=True
    ):
        gap, norm = np.linalg.norm(got - want), np.linalg.norm(want)
        assert gap <= 1e-4 * norm + 1e-6 * scale, f"{jax.tree_util.keystr(path)}: off by {gap} of {norm}"
