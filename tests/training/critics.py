"""The slow twin of steps with token-level credit: what ``per_path`` needs besides, for a step at a time."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.losses.policy import LossConfig
from rlsearch.training.step import StepConfig
from rlsearch.tree.forest import Forest
from tests.credit.plain import Table
from tests.credit.twins.critic import Token, tokenwise
from tests.losses import plain
from tests.models import small
from tests.training import cases, per_path

CREDIT = {"discount": 0.9, "lam": 0.8, "whiten": False, "step_reward": False, "drop_equal": False}
VALUE = {"kind": "value", "coefficient": 0.5, "clip": 0.2}


def loss_and_gradient(forest: Forest, step: StepConfig):
    """By paths, of the small policy, its reference, and a critic where the step has one."""
    critic = cases.critic(step.critic_trunk) if step.critic else None
    with pytest.MonkeyPatch.context() as patch:
        name = step.credit.estimator.name
        patch.setitem(per_path.TOKENWISE, name, functools.partial(_credit, name, step.loss))
        patch.setitem(plain.TERMS, "value", value)
        return per_path.loss_and_gradient(*models(), forest, step, critic=critic)


def models():
    return small.parameters(small.config()), small.parameters(small.config(), seed=7)


def value(paths: plain.Paths, *, coefficient: float, clip: float | None):
    """Half the square of the larger error, of every token of every path."""
    error = jnp.abs(paths.value - paths.returns)
    if clip is not None:
        held = paths.old_value + jnp.clip(paths.value - paths.old_value, -clip, clip)
        error = jnp.maximum(error, jnp.abs(held - paths.returns))
    return (coefficient * paths.weight * error**2 / 2).sum()


def _credit(name: str, loss: LossConfig, paths: plain.Paths, table: Table, sampled: np.ndarray, **options):
    """Token by token, from the outcome itself: the KL is not of the episode here, but of each token."""
    table = replace(table)  # its rewards again, without what the KL took of them
    penalty = np.zeros(sampled.shape)
    if loss.kl is not None and loss.kl.place == "reward":
        penalty = np.asarray(plain.penalty(paths, loss, of_old=True), np.float64)
    rows = {
        leaf: [
            Token(int(paths.node[row, t]), int(paths.turn[row, t]), float(paths.old_value[row, t]), penalty[row, t])
            for t in np.flatnonzero(sampled[row])
        ]
        for row, leaf in enumerate(table.leaves)
    }
    found = tokenwise(name, table, rows, **options)

    def laid(by_leaf):
        out = np.zeros(sampled.shape, np.float32)
        for row, leaf in enumerate(table.leaves):
            if leaf in by_leaf:
                out[row, sampled[row]] = by_leaf[leaf]
        return out

    return laid(found[0]), None if found[1] is None else laid(found[1]), found[2]
