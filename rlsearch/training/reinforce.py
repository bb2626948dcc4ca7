"""Reinforcement learning: write rollouts, score them, step; again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from rlsearch.envs.types import Question
from rlsearch.errors import InputError
from rlsearch.models import lora, sharding, value
from rlsearch.models.decoder import Params
from rlsearch.models.lora import LoraConfig
from rlsearch.sampling.rollouts import POLICY, START
from rlsearch.training import snapshots
from rlsearch.training.checkpoint import open_checkpoints
from rlsearch.training.collect import Batch, BatchConfig, Collector
from rlsearch.training.data import question_stream
from rlsearch.training.gather import global_batch
from rlsearch.training.state import OptimizerConfig, TrainState, fresh, make_optimizer
from rlsearch.training.step import StepConfig, make_policy_step, make_scores, make_values
from rlsearch.training.values import ValueConfig
from rlsearch.training.workdir import Workdir
from rlsearch.tree.check import check

STAGE = "rl"
ADAPTER = 2**31 - 1  # folded into the seed's key for a fresh adapter; steps are numbered below


@dataclass(frozen=True)
class RlConfig:
    """The loop."""

    steps: int
    batch: BatchConfig
    optimizer: OptimizerConfig
    merge_prefixes: float | None  # tolerance of log-probabilities, in nats, where equal prefixes become one node
    lora: LoraConfig | None  # an adapter that is all of the policy that is trained; None trains the whole
    values: ValueConfig | None  # values of questions that outlive a step, where a note reads them
    critic_optimizer: OptimizerConfig | None  # of the critic, where credit or the loss reads one
    critic_trunk: str | None  # of the critic, where there is one: one of value.TRUNKS
    updates_per_batch: int  # optimizer steps on each batch of rollouts
    checkpoint_every: int
    keep: int  # checkpoints kept
    evaluate_every: int  # 0 evaluates only before and after
    snapshot_every: int  # rollouts written for the report; 0 writes none
    snapshot_trees: int
    remat: str | bool
    attention: str  # one of attention.IMPLEMENTATIONS
    logp_chunk: int  # targets of a row whose logits are in memory at once; 0 for all
    logp_gap: float  # mean difference between the sampler's log-probabilities and the step's that stops a run, in nats

    def __post_init__(self):
        if self.merge_prefixes is not None and not self.merge_prefixes >= 0:
            raise InputError(
                f"config.rl.merge_prefixes is {self.merge_prefixes}: a difference of log-probabilities, in nats, up to"
                f" which equal tokens are one; set it to 0 or more, or to None to merge nothing"
            )


def reinforce(
    config: RlConfig,
    params: Params,
    *,
    questions: tuple[Question, ...],
    collector: Collector,
    step_config: StepConfig,
    mesh: Mesh,
    workdir: Workdir,
    seed: int,
    evaluate: Callable[[int, Params], None],
) -> tuple[TrainState, float]:
    """Trains ``params``; goes on from the newest checkpoint where there is one, as if it had not stopped.

    With LoRA they stay as they are, and an adapter of theirs is trained: it alone has a state of the optimizer and is
    in checkpoints. A reference policy is then what it is added to, and so is what the sampler reads: no second copy.

    Args:
      questions: to learn from.
      collector: writes the rollouts.
      evaluate: called with the number of updates and a local copy of the policy, every ``evaluate_every`` steps.

    Returns:
      The state (with LoRA of the adapter), and the seconds that the stage took, those before an interruption included.

    Raises:
      InputError: a step that was not finite (the batch is saved in the workdir), or whose log-probabilities are not
        those that the sampler recorded.
    """
    state, optimizer, critic_optimizer = _begin(config, step_config, params, mesh, seed=seed)
    reference = jax.device_put(params, sharding.shard(params, mesh)) if step_config.start else None
    local, policy = _local(step_config, reference, mesh), partial(step_config.policy, start=reference)
    judge, frozen = _judge(collector, policy, reference or params, step_config, mesh), _frozen(collector, params, mesh)
    stream = question_stream(
        questions, batch=config.batch.questions, seed=seed, process=jax.process_index(), processes=jax.process_count()
    )
    with open_checkpoints(workdir.path / "checkpoints" / STAGE, keep=config.keep) as checkpoints:
        begun, spent = 0, 0.0
        if checkpoints.latest() is not None:
            state, record = checkpoints.restore(state)
            begun, spent = checkpoints.latest(), record["seconds"]
            stream.set_state(record["questions"])
            if collector.values is not None:
                collector.values.restore(record["values"])
        workdir.rewind("metrics.jsonl", stage=STAGE, step=begun)
        workdir.rewind("evaluations.jsonl", stage=STAGE, step=begun)
        step = make_policy_step(step_config, optimizer, mesh, critic_optimizer=critic_optimizer)
        scores = make_scores(step_config, mesh) if step_config.loss.mismatch is not None else None
        values = make_values(step_config, mesh) if step_config.critic and config.updates_per_batch > 1 else None
        before = partial(_before, policy, scores, values)
        clock = time.monotonic()
        with tqdm(total=config.steps, initial=begun, desc="rl", unit="step", disable=not workdir.writes) as bar:
            for number in range(begun + 1, config.steps + 1):
                batch = _collect(collector, state, local, frozen, judge, next(stream), seed=seed, number=number)
                if number == begun + 1:
                    check(batch.forest)
                state, metrics, worth = _update(step, before, state, reference, batch, mesh, config.updates_per_batch)
                row = {
                    "stage": STAGE,
                    "step": number,
                    "time": spent + time.monotonic() - clock,
                    **batch.metrics,
                    **metrics,
                }
                _stop_unless_finite(row, batch, workdir)
                _stop_on_gap(row, config.logp_gap)
                workdir.append("metrics.jsonl", row)
                bar.update()
                bar.set_postfix(reward=f"{row['reward']:.2f}", searches=f"{row['searches']:.2f}")
                if config.snapshot_every and (number == 1 or number % config.snapshot_every == 0):
                    _snapshot(batch, worth, collector, workdir, number, config.snapshot_trees)
                if config.evaluate_every and number % config.evaluate_every == 0 and number < config.steps:
                    evaluate(number, local(state))
                # Last: what a step leaves behind must be there when a later run goes on from its checkpoint.
                if number % config.checkpoint_every == 0 or number == config.steps:
                    record = {"seconds": row["time"], "questions": stream.get_state()}
                    if collector.values is not None:
                        record["values"] = collector.values.record()
                    checkpoints.save(number, state, record)
        return state, spent + time.monotonic() - clock


def _begin(config: RlConfig, step_config: StepConfig, params: Params, mesh: Mesh, *, seed: int):
    """The state before any step, of the parameters or an adapter of theirs, and the optimizers of policy and critic."""
    steps = config.steps * config.updates_per_batch
    optimizer, critic, critic_optimizer = make_optimizer(config.optimizer, steps=steps), None, None
    if step_config.critic:
        critic_optimizer = make_optimizer(config.critic_optimizer, steps=steps)
        critic = fresh(value.start(params, trunk=config.critic_trunk), critic_optimizer, mesh)
    if step_config.lora is not None:
        params = lora.init(jax.random.fold_in(jax.random.key(seed), ADAPTER), step_config.model, step_config.lora)
    return fresh(params, optimizer, mesh, critic=critic), optimizer, critic_optimizer


def _local(config: StepConfig, start: Params | None, mesh: Mesh) -> Callable[[TrainState], Params]:
    """The policy of a state on this process's first device; what an adapter is added to is gathered once."""
    start = None if config.lora is None else sharding.to_local(start, mesh)
    return lambda state: config.policy(sharding.to_local(state.params, mesh), start)


def _frozen(collector: Collector, params: Params, mesh: Mesh) -> dict[str, Params]:
    """What roles write that are not trained, where there are any: the policy from before the first step."""
    return {START: sharding.to_local(params, mesh)} if START in collector.scene.writers.values() else {}


def _judge(collector: Collector, policy, start: Params, config: StepConfig, mesh: Mesh):
    """Of a state: what says the log-probabilities of rows to the scorer, or None where there is none."""
    if collector.scorer is None:
        return lambda state: None
    judge = collector.scorer.judge(start, config, mesh)
    return lambda state: partial(judge, policy(state.params))


def _collect(
    collector: Collector, state: TrainState, local, frozen, judge, questions, *, seed: int, number: int
) -> Batch:
    process = jax.process_index()
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), number), process)
    rng = np.random.default_rng([seed, 4, number, process])
    return collector.collect(
        {POLICY: local(state)} | frozen, questions, key=key, rng=rng, version=int(state.step), judge=judge(state)
    )  # fmt: skip


def _before(policy, scores, values, state: TrainState, rows, blocks):
    """What policy and critic say before the first update on a batch, each where it is asked for.

    ``scores``, where given, says what the policy is by the trainer's own reckoning: ratios are then relative to it, and
    the loss corrects for the sampler's. ``values`` is for critics that are updated more than once on a batch.
    """
    old_logp = None if scores is None else scores(policy(state.params), rows, blocks)
    if values is None:
        return old_logp, None
    return old_logp, values(value.whole(state.critic.params, policy(state.params)), rows, blocks)


def _update(step, before, state: TrainState, reference, batch: Batch, mesh: Mesh, updates: int):
    """Makes the updates of a batch; the metrics are those of the first, whose policy wrote the rollouts.

    An update that is not finite is the last, and its metrics are returned. With them comes a function that says what
    each node was worth, or None where the batch holds nothing to train on.
    """
    rows, blocks, nodes = global_batch(batch, mesh)
    if blocks == 0:
        return state, {"loss": 0.0}, None
    old = before(state, rows, blocks)
    first = None
    for _ in range(updates):
        state, metrics, credit = step(state, reference, rows, blocks, nodes, *old)
        if first is None or not metrics["finite"]:
            first = metrics, credit
        if not metrics["finite"]:
            break
    metrics, credit = first

    def worth():
        # From copies on the host: of several processes one alone may ask.
        return np.asarray(jax.device_get(credit).mean(jax.device_get(nodes.paths)))

    return state, {name: float(value) for name, value in metrics.items()}, worth


def _stop_unless_finite(row: dict[str, Any], batch: Batch, workdir: Workdir) -> None:
    if row.pop("finite", 1.0):
        return
    file = workdir.path / f"not_finite_step_{row['step']}_process_{jax.process_index()}.npz"
    parts = {"rows": batch.rows, "nodes": batch.nodes}
    np.savez(file, **{f"{part}.{name}": leaf for part, leaves in parts.items() for name, leaf in vars(leaves).items()})
    raise InputError(
        f"rl step {row['step']}: loss {row['loss']}, gradient norm {row['grad_norm']}; the update was not made and the"
        f" batch is in {file}. Lower the learning rate, or look at the batch"
    )


def _stop_on_gap(row: dict[str, Any], limit: float) -> None:
    """The policy that is trained must be the one that wrote the rollouts."""
    if row.get("logp_gap", 0.0) > limit:
        raise InputError(
            f"rl step {row['step']}: log-probabilities of sampler and step differ by {row['logp_gap']:.2g} nats"
            f" on average, more than config.rl.logp_gap {limit:.2g}; temperature, precision or masks disagree"
        )


def _snapshot(batch: Batch, worth, collector: Collector, workdir: Workdir, number: int, trees: int) -> None:
    if worth is None or not workdir.writes:
        return
    value = snapshots.snapshot(
        batch, worth(), tokenizer=collector.scene.tokenizer, reward=collector.reward, step=number, trees=trees
    )
    workdir.write_json(f"rollouts/step_{number:06d}.json", value)
