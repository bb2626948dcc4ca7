"""Trains a policy from a config, start to end: ``python -m rlsearch.train --config=... --workdir=...``.

Builds the task and its indexes, warms the policy up, evaluates, runs reinforcement learning, evaluates again, exports,
reports. A run that was stopped goes on where it was when the same command is given again.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import jax
from absl import flags
from ml_collections import ConfigDict, config_flags

from rlsearch import command, lines, settings
from rlsearch.assemble import HuggingFacePolicy, Parts, assemble, meet, open_scorer, read_policy
from rlsearch.errors import InputError
from rlsearch.evaluation.evaluate import evaluate
from rlsearch.interop.adapter import export_adapter
from rlsearch.interop.export import export_model
from rlsearch.models import decoder, lora, sharding
from rlsearch.models.decoder import Params
from rlsearch.report import report
from rlsearch.sampling.rollouts import POLICY, START
from rlsearch.settings import Settings
from rlsearch.training.collect import Collector
from rlsearch.training.demonstrations import Demonstrator
from rlsearch.training.reinforce import STAGE, reinforce
from rlsearch.training.scorer import RowConfig, Scorer
from rlsearch.training.step import StepConfig
from rlsearch.training.values import Values
from rlsearch.training.warmup import warm_up
from rlsearch.training.workdir import Workdir

CONFIG = config_flags.DEFINE_config_file("config", None, "The run's config.", lock_config=True)
WORKDIR = flags.DEFINE_string("workdir", None, "The run's directory; made where it is missing.")
COORDINATOR = flags.DEFINE_string("coordinator", None, "Address of process 0, host:port, where there are several.")
PROCESSES = flags.DEFINE_integer("processes", 1, "How many processes there are.")
PROCESS = flags.DEFINE_integer("process", 0, "Which of them this is.")


def train(config: ConfigDict, path: Path) -> dict[str, Any]:
    """Runs ``config`` in ``path`` to its end; returns the summary that ``summary.json`` holds.

    Raises:
      InputError: bad input; what was done so far stays in ``path``.
    """
    begun = time.monotonic()
    read = settings.read(config)
    mesh = sharding.make_mesh(read.mesh)
    settings.check_shares(read, mesh, processes=jax.process_count())
    workdir = Workdir(path, writes=jax.process_index() == 0)
    if workdir.writes:
        workdir.open(config)
    meet("workdir")
    parts = assemble(config, path, writes=workdir.writes, mesh=mesh)
    if read.scorer is not None:
        open_scorer(read.scorer.model, parts.policy)  # so that one that does not fit is refused before the warm-up
    if read.rl.lora is not None:
        lora.check(read.rl.lora, parts.policy.model)
    seconds = {"prepare": time.monotonic() - begun}
    params = parts.policy.params
    say(workdir, lines.prepared(parts, decoder.parameter_count(params)))
    if read.warmup is not None:
        params, seconds["warmup"] = _warm_up(read, config, parts, mesh, workdir)
    start = sharding.to_local(params, mesh) if read.rl.lora is not None or read.sampling.frozen_roles else None
    before, seconds["evaluate"] = timed(lambda: measure(parts, sharding.to_local(params, mesh), start, workdir, step=0))
    say(workdir, lines.evaluated("before", before))
    state, seconds["rl"] = _reinforce(read, config.seed, parts, params, start, mesh, workdir)
    trained = sharding.to_local(state.params, mesh)
    local = make_step_config(read, parts).policy(trained, None if read.rl.lora is None else start)
    after, spent = timed(lambda: measure(parts, local, start, workdir, step=read.rl.steps))
    seconds["evaluate"] += spent
    say(workdir, lines.evaluated("after", after))
    summary = {
        "before": before, "after": after, "seconds": seconds | {"total": sum(seconds.values())},
        "peak_gb": peak_gb(), "parameters": decoder.parameter_count(local), "export": str(path / "export"),
    }  # fmt: skip
    if workdir.writes:
        export(read, config, path, parts, trained, start)
        workdir.write_json("summary.json", summary)
        page = report(path)
        say(workdir, lines.finished(summary, page))
    return summary


def _warm_up(read: Settings, config: ConfigDict, parts: Parts, mesh, workdir: Workdir) -> tuple[Params, float]:
    warmup = read.warmup
    demonstrator = Demonstrator(
        worlds=tuple(parts.task.worlds.values()), traces=warmup.traces, hops=tuple(config.task.worlds.hops),
        env=parts.task.env, tokenizer=parts.policy.tokenizer, template=parts.scene.template,
        max_observation_tokens=read.sampling.max_observation_tokens, rows_of_step=warmup.rows // jax.process_count(),
        row_tokens=warmup.row_tokens, row_targets=warmup.row_targets, seed=config.seed, process=jax.process_index(),
    )  # fmt: skip
    return warm_up(
        warmup, parts.policy.params, model=parts.policy.model, demonstrator=demonstrator, mesh=mesh, workdir=workdir
    )


def make_collector(read: Settings, parts: Parts, *, share: int) -> Collector:
    """What writes the rollouts of a step; ``share`` is the number of processes that share a step."""
    values = None if read.rl.values is None else Values(read.rl.values)
    scorer = None if read.scorer is None else make_scorer(read, parts, share=share)
    # Where a KL is taken from rewards, those that are equal before it need not be equal after it.
    penalised = read.loss.kl is not None and read.loss.kl.place == "reward"
    return Collector(
        engine=parts.engine, scene=parts.scene, expander=read.expander, reward=read.reward, notes=read.notes,
        values=values, scorer=scorer, config=read.rl.batch, merge_prefixes=read.rl.merge_prefixes,
        drop_equal=read.credit.drops_questions and not penalised,
        draw=read.sampling.draw, budget=read.sampling.budget, share=share,
    )  # fmt: skip


def make_scorer(read: Settings, parts: Parts, *, share: int) -> Scorer:
    """The frozen model that scores answers, in rows of the size that the policy step has."""
    model, load = open_scorer(read.scorer.model, parts.policy)
    batch = read.rl.batch
    rows = RowConfig(batch.row_tokens, batch.row_targets, batch.block_rows // share, batch.blocks)
    return Scorer(read.scorer, parts.policy.tokenizer, model, load, rows)


def make_step_config(read: Settings, parts: Parts) -> StepConfig:
    """What the policy step is compiled for."""
    return StepConfig(
        model=parts.policy.model, credit=read.credit, loss=read.loss, weights=read.reward.weights,
        temperature=read.sampling.temperature, remat=read.rl.remat, attention=read.rl.attention,
        logp_chunk=read.rl.logp_chunk, critic_trunk=read.rl.critic_trunk, lora=read.rl.lora,
    )  # fmt: skip


def _reinforce(read: Settings, seed: int, parts: Parts, params: Params, start: Params | None, mesh, workdir: Workdir):
    return reinforce(
        read.rl, params, questions=parts.task.train, step_config=make_step_config(read, parts),
        collector=make_collector(read, parts, share=jax.process_count()), mesh=mesh, workdir=workdir, seed=seed,
        evaluate=lambda step, local: measure(parts, local, start, workdir, step=step),
    )  # fmt: skip


def measure(parts: Parts, params: Params, start: Params | None, workdir: Workdir, *, step: int) -> dict[str, Any]:
    """Evaluates on the held-out questions and notes it; a step that was evaluated before is read back."""
    known = [row for row in workdir.rows("evaluations.jsonl") if row["step"] == step]
    if known:
        return known[-1]
    writers = {POLICY: params} if start is None else {POLICY: params, START: start}
    record = evaluate(parts.engine, parts.scene, writers, parts.task.heldout, stage=STAGE, step=step, name="heldout")
    workdir.append("evaluations.jsonl", record)
    return record


def export(read: Settings, config: ConfigDict, path: Path, parts: Parts, trained: Params, start: Params | None) -> None:
    """The policy as ``path / "export"``; with LoRA that is the sum, and the adapter alone is ``path / "adapter"``.

    What the adapter is of is where the config says, or ``path / "base"`` where that is no directory of Hugging Face's
    or where a warm-up changed it.
    """
    model, tokenizer = parts.policy.model, parts.policy.tokenizer
    if read.rl.lora is None:
        export_model(path / "export", trained, model, tokenizer)
        return
    export_model(path / "export", lora.merge({**start, **trained}, read.rl.lora), model, tokenizer)
    spec, base = read_policy(config.policy), path / "base"
    if isinstance(spec, HuggingFacePolicy) and read.warmup is None:
        base = Path(spec.path)
    else:
        export_model(base, start, model, tokenizer)
    export_adapter(path / "adapter", trained, model, read.rl.lora, base=str(base.absolute()))


def timed(work):
    """The result of ``work()`` and the seconds it took."""
    begun = time.monotonic()
    return work(), time.monotonic() - begun


def peak_gb() -> float:
    """The most memory that this process has held, in units of 2**30 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def say(workdir: Workdir, text: str) -> None:
    """Prints on one process only."""
    if workdir.writes:
        print(text, flush=True)


def join() -> None:
    """Joins the other processes, where there are any.

    Raises:
      InputError: the flags do not say who they are.
    """
    if PROCESSES.value > 1:
        if COORDINATOR.value is None or not 0 <= PROCESS.value < PROCESSES.value:
            raise InputError(
                f"--processes={PROCESSES.value} --process={PROCESS.value} --coordinator={COORDINATOR.value}: several"
                f" processes need the same host:port as coordinator and a number from 0 each; see launch/local.py"
            )
        jax.distributed.initialize(COORDINATOR.value, num_processes=PROCESSES.value, process_id=PROCESS.value)


def main() -> None:
    join()
    train(CONFIG.value, Path(WORKDIR.value))


if __name__ == "__main__":
    command.run(main)
