"""The jitted steps: one of reinforcement learning, with credit inside, and one of supervised warm-up.

A batch is M blocks of R rows, of which the first ``blocks`` hold something; the loop over them is dynamic, so one
compilation serves every batch and an idle block costs nothing. Rows lie over the mesh's data axes.

Where the loss of a token depends on that token alone, the blocks are gone through once. Where it depends on others
(the ratio of a sequence, a contrast of two episodes), which may lie in other blocks, they are gone through twice:
forward for the log-probabilities of all, from which the objective and its gradient by each of them follow, and then
forward and backward with that gradient. Accumulation thus never changes a loss.
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

from rlsearch.credit.algebra import Episodes
from rlsearch.credit.estimate import estimate
from rlsearch.credit.registry import CreditConfig
from rlsearch.credit.slots import Slots
from rlsearch.losses import logprob, policy, targets
from rlsearch.losses.policy import LossConfig
from rlsearch.losses.targets import Given
from rlsearch.models import attention as attentions
from rlsearch.models import decoder, lora, sharding, value
from rlsearch.models.decoder import DecoderConfig, Params
from rlsearch.models.layout import ALONE, Layout
from rlsearch.models.lora import LoraConfig
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
    remat: str | bool
    attention: str  # of rows: one of attention.IMPLEMENTATIONS
    logp_chunk: int  # targets of a row whose logits are in memory at once, 0 for all (``logprob.score_hidden``)
    critic_trunk: str | None  # of the critic, where there is one: one of value.TRUNKS
    lora: LoraConfig | None  # of the policy, where an adapter is all of it that is trained

    @property
    def start(self) -> bool:
        """Whether a step reads the parameters that the stage starts from: as reference policy, or under an adapter."""
        return self.loss.reference or self.lora is not None

    def policy(self, trained: Params, start: Params | None) -> Params:
        """The policy: the parameters that are trained, or those of the start with the adapter that is."""
        return trained if self.lora is None else lora.attach({**start, **trained}, self.lora)

    @property
    def critic(self) -> bool:
        """Whether there is one: where credit or the loss reads it."""
        return self.credit.chosen.critic or self.loss.critic


Metrics = dict[str, Array]


def make_policy_step(
    config: StepConfig,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    critic_optimizer: optax.GradientTransformation | None = None,
) -> Callable:
    """``policy_step``, jitted; the state is donated."""
    return jax.jit(policy_step(config, optimizer, mesh, critic_optimizer=critic_optimizer), donate_argnums=0)


def policy_step(
    config: StepConfig,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    critic_optimizer: optax.GradientTransformation | None,
) -> Callable:
    """Builds ``step(state, reference, rows, blocks, nodes, old_logp, old_value=None) -> (state, metrics, credit)``.

    ``rows`` are [M, R, ...], ``blocks`` says how many of the M are used, ``nodes`` is the whole batch's table,
    ``reference`` the parameters of the reference policy, or None where nothing reads it, and ``old_logp`` [M, R, S] the
    log-probabilities of the policy before the first update on this batch, or None to take the sampler's for them.
    With LoRA the state has the adapter alone, and ``reference`` the frozen parameters under it: one copy is both.
    ``old_value`` [M, R, S] is what the critic said then, or None where this is the first update: credit is computed
    from it, so that it does not move with the critic.
    """
    attentions.check_mesh(config.attention, mesh)
    kinds = {"attention": config.attention, "remat": config.remat, "layout": Layout.over(mesh)}
    head = {"temperature": config.temperature, "logp_chunk": config.logp_chunk}
    score = partial(target_logps, model=config.model, **head, **kinds)
    judge = partial(target_values, model=config.model, **kinds)

    def models(reference, params, rows: Rows):
        whole = config.policy(params["policy"], reference)
        if config.critic and config.critic_trunk != "own":
            states = _before_targets(whole, config.model, rows, **kinds)
            said = value.on_states(params["critic"], states, trunk=config.critic_trunk)
            return *_logps(whole, config.model, states, rows, layout=kinds["layout"], **head), said
        logp, entropy = score(whole, rows=rows)
        return logp, entropy, judge(params["critic"], rows=rows) if config.critic else None

    def step(
        state: TrainState, reference: Params | None, rows: Rows, blocks: Int[Array, ""], nodes: Nodes, old_logp,
        old_value=None,
    ):  # fmt: skip
        params = {"policy": state.params, "critic": state.critic.params if config.critic else None}
        use = (rows.target >= 0) & (jnp.arange(len(rows.target))[:, None, None] < blocks)
        old_logp = rows.behavior_logp if old_logp is None else old_logp
        reference_logp = None
        if config.loss.reference:
            reference_logp = _each(lambda block: score(reference, rows=block)[0], rows, blocks)
        if config.critic and old_value is None:
            critic = value.whole(params["critic"], config.policy(params["policy"], reference))
            old_value = _each(lambda block: judge(critic, rows=block), rows, blocks)
        slots = Slots(rows.target_node, use, old_value, policy.penalty(config.loss, use, old_logp, reference_logp))
        credit = estimate(
            nodes, config.credit, weights=config.weights, reduction=config.loss.reduction, slots=slots
        )  # fmt: skip
        given = Given(
            rows.target_node, use, rows.behavior_logp, old_logp, reference_logp, old_value, credit.advantage.affine,
            credit.returns and credit.returns.affine,
        )  # fmt: skip

        def objective(given: Given, logp, entropy, value):
            # One of its own for every trace: what Episodes has worked out cannot leave the trace that it was in.
            batch = targets.Batch(Episodes(nodes, config.weights, slots, None), credit)
            made = targets.make(batch, given, logp=logp, entropy=entropy, value=value)
            return policy.objective(config.loss, made, batch)

        if config.loss.whole:
            found = _in_two_passes(partial(models, reference), objective, params, rows, given, blocks)
        else:
            found = _in_one_pass(partial(models, reference), objective, params, rows, given, blocks)
        loss, sums, grads = found
        count = jnp.maximum(sums.pop("targets"), 1.0)
        metrics = {name: value if name.startswith("term_") else value / count for name, value in sums.items()}
        return (*_update(optimizer, critic_optimizer, state, grads, {"loss": loss, **metrics}), credit)

    return _placed(step, mesh)


def make_scores(config: StepConfig, mesh: Mesh | None = None) -> Callable:
    """Builds ``scores(params, rows, blocks) -> logp [M, R, S]``: every target's log-probability, 0 in idle blocks."""

    def scores(params: Params, rows: Rows, blocks: Int[Array, ""]):
        def one(block: Rows):
            return target_logps(
                params, config.model, block, attention=config.attention, temperature=config.temperature,
                remat=False, logp_chunk=config.logp_chunk, layout=Layout.over(mesh),
            )[0]  # fmt: skip

        return _each(one, rows, blocks)

    return jax.jit(scores)


def make_values(config: StepConfig, mesh: Mesh | None = None) -> Callable:
    """Builds ``values(critic, rows, blocks) -> value [M, R, S]``: before every target, 0 in idle blocks.

    The critic has a trunk (``value.whole``).
    """

    def values(params: Params, rows: Rows, blocks: Int[Array, ""]):
        def one(block: Rows):
            kinds = {"attention": config.attention, "remat": False, "layout": Layout.over(mesh)}
            return target_values(params, config.model, block, **kinds)

        return _each(one, rows, blocks)

    return jax.jit(values)


def make_supervised_step(
    model: DecoderConfig,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    attention: str,
    remat: str | bool,
    logp_chunk: int,
) -> Callable:
    """Builds ``step(state, rows, blocks) -> (state, metrics)``: maximum likelihood of the targets."""
    attentions.check_mesh(attention, mesh)
    score = partial(
        target_logps, attention=attention, temperature=1.0, remat=remat, logp_chunk=logp_chunk, layout=Layout.over(mesh)
    )

    def step(state: TrainState, rows: Rows, blocks: Int[Array, ""]):
        used = jnp.arange(len(rows.target))[:, None, None] < blocks
        count = jnp.maximum((used & (rows.target >= 0)).sum(), 1).astype(jnp.float32)

        def loss_of_block(params, block: Rows):
            logp, _ = score(params, model, block)
            return policy.supervised(logp=logp, use=block.target >= 0, count=count), {}

        loss, _, grads = _accumulate(loss_of_block, state.params, rows, blocks)
        return _update(optimizer, None, state, {"policy": grads}, {"loss": loss})

    return jax.jit(_placed(step, mesh), donate_argnums=0)


def target_logps(
    params: Params,
    model: DecoderConfig,
    rows: Rows,
    *,
    attention: str,
    temperature: float,
    remat: str | bool,
    logp_chunk: int,
    layout: Layout = ALONE,
):
    """Log-probability and entropy of every target, [R, S] each; padding has some finite value."""
    states = _before_targets(params, model, rows, attention=attention, remat=remat, layout=layout)
    return _logps(params, model, states, rows, temperature=temperature, logp_chunk=logp_chunk, layout=layout)


def _logps(
    params: Params, model: DecoderConfig, states, rows: Rows, *, temperature: float, logp_chunk: int, layout: Layout
):
    """Log-probability and entropy of every target from the states before them."""
    found = logprob.score_hidden(
        layout.shares(states), decoder.head(params, model), layout.shares(rows.target_id), tied=model.tied,
        temperature=temperature, chunk=logp_chunk, cap=model.logit_cap,
    )  # fmt: skip
    return tuple(layout.joined(x) for x in found)


def target_values(
    params: Params, model: DecoderConfig, rows: Rows, *, attention: str, remat: str | bool, layout: Layout = ALONE
):
    """The critic's value of the state before every target, [R, S]: after the token that precedes it on its path."""
    return value.head(params, _before_targets(params, model, rows, attention=attention, remat=remat, layout=layout))


def _before_targets(params: Params, model: DecoderConfig, rows: Rows, *, layout: Layout, **kinds: Any):
    """Hidden states [R, S, E] after the token that precedes each target on its path."""
    hidden = decoder.apply(
        params, model, token_id=rows.token_id, position=rows.position, token_end=rows.token_end, layout=layout, **kinds
    )
    return jnp.take_along_axis(layout.rows(hidden), rows.target_prev[:, :, None], axis=1)


def _each(score: Callable[[Any], Any], blocks_of: Any, blocks: Int[Array, ""]) -> Any:
    """``score`` of every block in use, stacked [M, ...]; zeros for idle blocks. No gradient flows."""
    shapes = jax.eval_shape(score, jax.tree.map(lambda leaf: leaf[0], blocks_of))
    count = len(jax.tree.leaves(blocks_of)[0])
    empty = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shapes)

    def add(index, found):
        one = score(jax.tree.map(lambda leaf: leaf[index], blocks_of))
        return jax.tree.map(lambda all_, new: all_.at[index].set(new), found, one)

    return jax.lax.stop_gradient(jax.lax.fori_loop(0, blocks, add, empty))


def _in_one_pass(models: Callable, objective: Callable, params, rows: Rows, given: Given, blocks):
    """Loss, metric sums and gradients of an objective that is a sum over tokens."""

    def of_block(params, block):
        own_rows, own_given = block
        logp, entropy, values = models(params, own_rows)
        return objective(own_given, logp, entropy, values)

    return _accumulate(of_block, params, (rows, given), blocks)


def _in_two_passes(models: Callable, objective: Callable, params, rows: Rows, given: Given, blocks):
    """Loss, metric sums and gradients of an objective that needs the scores of all targets at once."""
    scores = _each(lambda block: models(params, block), rows, blocks)
    (loss, sums), slopes = jax.value_and_grad(lambda s: objective(given, *s), has_aux=True)(scores)

    def of_block(params, block):
        own_rows, own_slopes = block
        found = models(params, own_rows)
        return sum((x * slope).sum() for x, slope in zip(found, own_slopes, strict=True) if x is not None), {}

    _, _, grads = _accumulate(of_block, params, (rows, slopes), blocks)
    return loss, sums, grads


def _accumulate(loss_of_block: Callable, params: Params, blocks_of: Any, blocks) -> tuple[Array, Metrics, Params]:
    """Sums loss, metric sums and gradients over the blocks in use."""
    block = jax.tree.map(lambda leaf: leaf[0], blocks_of)
    shapes = jax.eval_shape(jax.value_and_grad(loss_of_block, has_aux=True), params, block)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def add(index, total):
        block = jax.tree.map(lambda leaf: leaf[index], blocks_of)
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss_of_block, has_aux=True)(params, block))

    (loss, sums), grads = jax.lax.fori_loop(0, blocks, add, zeros)
    return loss, sums, grads


def _update(optimizer, critic_optimizer, state: TrainState, grads: dict, metrics: Metrics):
    """Applies the gradients; a step that is not finite leaves the state as it was and says so in ``finite``."""
    norm = optax.tree.norm(grads["policy"])
    finite = jnp.isfinite(norm) & jnp.isfinite(metrics["loss"])
    critic = state.critic
    if critic is not None:
        critic_norm = optax.tree.norm(grads["critic"])
        finite &= jnp.isfinite(critic_norm)
        metrics = {**metrics, "critic_grad_norm": critic_norm}
        critic = _moved(critic_optimizer, critic, grads["critic"], None)
    moved = _moved(optimizer, state, grads["policy"], critic)
    kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, state)
    return kept, {**metrics, "grad_norm": norm, "finite": finite}


def _moved(optimizer, state: TrainState, grads: Params, critic: TrainState | None) -> TrainState:
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    return TrainState(optax.apply_updates(state.params, updates), opt_state, state.step + 1, critic)


def _placed(step: Callable, mesh: Mesh) -> Callable:
    """A step whose first argument and first result are the train state, laid out by the sharding table."""

    def wrapped(state: TrainState, *args: Any):
        out = step(state, *args)
        place = sharding.shard(state, mesh)
        return (jax.lax.with_sharding_constraint(out[0], place), *out[1:])

    return wrapped
