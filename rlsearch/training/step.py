"""The jitted steps: one of GRPO and its kin, with credit inside, and one of supervised warm-up.

A batch is M blocks of R rows, of which the first ``blocks`` hold something; the loop over them is dynamic, so one
compilation serves every batch and an idle block costs nothing. Rows lie over the mesh's data axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Int

from rlsearch.credit import estimators
from rlsearch.credit.estimators import CreditConfig
from rlsearch.losses import logprob, policy, reduce
from rlsearch.losses.policy import LossConfig
from rlsearch.models import attention as attentions
from rlsearch.models import decoder, sharding
from rlsearch.models.decoder import DecoderConfig, Params
from rlsearch.training.state import TrainState
from rlsearch.tree.forest import Nodes, Rows


@dataclass(frozen=True)
class StepConfig:
    """What the policy step is compiled for."""

    model: DecoderConfig
    credit: CreditConfig
    loss: LossConfig
    weights: tuple[float, ...]  # of the reward columns
    temperature: float
    remat: bool
    attention: str  # of rows: one of attention.IMPLEMENTATIONS
    logp_chunk: int  # targets of a row whose logits are in memory at once, 0 for all (``logprob.score_hidden``)


Metrics = dict[str, Array]


def make_policy_step(config: StepConfig, optimizer: optax.GradientTransformation, mesh: Mesh) -> Callable:
    """Builds ``step(state, reference, rows, blocks, nodes) -> (state, metrics, credit)``.

    ``rows`` are [M, R, ...], ``blocks`` says how many of the M are used, ``nodes`` is the whole batch's table and
    ``reference`` the parameters of the reference policy, or None where the loss has no KL term.
    """
    attentions.check_mesh(config.attention, mesh)
    kinds = {"attention": config.attention, "temperature": config.temperature, "logp_chunk": config.logp_chunk}
    score = partial(target_logps, **kinds)

    def loss_of_block(params, reference, rows: Rows, credit):
        logp, entropy = score(params, config.model, rows, remat=config.remat)
        reference_logp = None
        if reference is not None:
            reference_logp, _ = score(reference, config.model, rows, remat=False)
            reference_logp = jax.lax.stop_gradient(reference_logp)
        return policy.objective(
            config.loss, logp=logp, behavior_logp=rows.behavior_logp, reference_logp=reference_logp, entropy=entropy,
            positive=credit.positive[rows.target_node], negative=credit.negative[rows.target_node],
            weight=credit.weight[rows.target_node], use=(rows.target >= 0) & (credit.weight[rows.target_node] > 0),
        )  # fmt: skip

    def step(state: TrainState, reference: Params | None, rows: Rows, blocks: Int[Array, ""], nodes: Nodes):
        credit = estimators.estimate(
            nodes, config.credit, weights=config.weights, reduction=reduce.REDUCTIONS[config.loss.reduction]
        )
        loss, sums, grads = _accumulate(
            lambda params, block: loss_of_block(params, reference, block, credit), state.params, rows, blocks
        )
        count = jnp.maximum(sums.pop("targets"), 1.0)
        metrics = {"loss": loss, **{name: value / count for name, value in sums.items()}}
        return (*_update(optimizer, state, grads, metrics), credit)

    return _jit(step, mesh)


def make_supervised_step(
    model: DecoderConfig,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    attention: str,
    remat: bool,
    logp_chunk: int,
) -> Callable:
    """Builds ``step(state, rows, blocks) -> (state, metrics)``: maximum likelihood of the targets."""
    attentions.check_mesh(attention, mesh)
    score = partial(target_logps, attention=attention, temperature=1.0, remat=remat, logp_chunk=logp_chunk)

    def step(state: TrainState, rows: Rows, blocks: Int[Array, ""]):
        used = jnp.arange(len(rows.target))[:, None, None] < blocks
        count = jnp.maximum((used & (rows.target >= 0)).sum(), 1).astype(jnp.float32)

        def loss_of_block(params, block: Rows):
            logp, _ = score(params, model, block)
            return policy.supervised(logp=logp, use=block.target >= 0, count=count), {}

        loss, _, grads = _accumulate(loss_of_block, state.params, rows, blocks)
        return _update(optimizer, state, grads, {"loss": loss})

    return _jit(step, mesh)


def target_logps(
    params: Params,
    model: DecoderConfig,
    rows: Rows,
    *,
    attention: str,
    temperature: float,
    remat: bool,
    logp_chunk: int,
):
    """Log-probability and entropy of every target, [R, S] each; padding has some finite value."""
    hidden = decoder.apply(
        params, model, token_id=rows.token_id, position=rows.position, token_end=rows.token_end, remat=remat,
        attention=attention,
    )  # fmt: skip
    chosen = jnp.take_along_axis(hidden, rows.target_prev[:, :, None], axis=1)
    return logprob.score_hidden(
        chosen, decoder.head(params, model), rows.target_id, tied=model.tied, temperature=temperature, chunk=logp_chunk
    )


def _accumulate(loss_of_block: Callable, params: Params, rows: Rows, blocks) -> tuple[Array, Metrics, Params]:
    """Sums loss, metric sums and gradients over the blocks in use."""
    block = jax.tree.map(lambda leaf: leaf[0], rows)
    shapes = jax.eval_shape(jax.value_and_grad(loss_of_block, has_aux=True), params, block)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def add(index, total):
        block = jax.tree.map(lambda leaf: leaf[index], rows)
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss_of_block, has_aux=True)(params, block))

    (loss, sums), grads = jax.lax.fori_loop(0, blocks, add, zeros)
    return loss, sums, grads


def _update(optimizer, state: TrainState, grads: Params, metrics: Metrics) -> tuple[TrainState, Metrics]:
    """Applies the gradients; a step that is not finite leaves the state as it was and says so in ``finite``."""
    norm = optax.tree.norm(grads)
    finite = jnp.isfinite(norm) & jnp.isfinite(metrics["loss"])
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    moved = TrainState(optax.apply_updates(state.params, updates), opt_state, state.step + 1)
    kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, state)
    return kept, {**metrics, "grad_norm": norm, "finite": finite}


def _jit(step: Callable, mesh: Mesh) -> Callable:
    """Jits a step whose first argument and first result are the train state, laid out by the sharding table."""

    def wrapped(state: TrainState, *args: Any):
        out = step(state, *args)
        place = sharding.shard(state, mesh)
        return (jax.lax.with_sharding_constraint(out[0], place), *out[1:])

    return jax.jit(wrapped, donate_argnums=0)
