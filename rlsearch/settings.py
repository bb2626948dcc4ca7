"""A training run's config as dataclasses, all read before anything is built."""

from __future__ import annotations

from dataclasses import dataclass

from jax.sharding import Mesh
from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.credit import estimate, registry  # noqa: F401  (estimate registers every estimator)
from rlsearch.credit.registry import CreditConfig
from rlsearch.errors import InputError, nearest
from rlsearch.losses import policy
from rlsearch.losses.policy import LossConfig
from rlsearch.models import decoder, lora
from rlsearch.models.decoder import DecoderConfig
from rlsearch.models.lora import LoraConfig
from rlsearch.models.sharding import MeshConfig
from rlsearch.models.value import TRUNKS
from rlsearch.rewards.likelihood import ScorerConfig
from rlsearch.rewards.notes import LIKELIHOOD, PERSISTENT, Notes
from rlsearch.rewards.reward import Reward
from rlsearch.sampling.engine import SamplingConfig
from rlsearch.sampling.expanders import registry as expanders
from rlsearch.sampling.grow import Expander
from rlsearch.training.rehearse import rehearse
from rlsearch.training.reinforce import RlConfig
from rlsearch.training.warmup import WarmupConfig

SECTIONS = {
    "name", "seed", "task", "env", "policy", "template", "search", "warmup", "expander", "sampling", "reward", "notes",
    "scorer", "credit", "loss", "rl", "mesh",
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The sections that training itself reads; ``assemble`` reads those of the task and the policy."""

    warmup: WarmupConfig | None
    expander: Expander
    sampling: SamplingConfig
    reward: Reward
    notes: Notes
    scorer: ScorerConfig | None
    credit: CreditConfig
    loss: LossConfig
    rl: RlConfig
    mesh: MeshConfig


def read(config: ConfigDict) -> Settings:
    """Reads a config.

    Raises:
      InputError: a key is unknown, missing or of the wrong type; or a warm-up has no worlds to demonstrate on.
    """
    check_sections(config)
    settings = Settings(
        warmup=None if config.warmup is None else configs.read(config.warmup, WarmupConfig, "config.warmup"),
        expander=expanders.make(config.expander),
        sampling=configs.read(config.sampling, SamplingConfig, "config.sampling"),
        reward=configs.read(config.reward, Reward, "config.reward"),
        notes=Notes(tuple(tuple(pair) for pair in config.notes)),
        scorer=None if config.scorer is None else configs.read(config.scorer, ScorerConfig, "config.scorer"),
        credit=registry.read(config.credit),
        loss=policy.read(config.loss),
        rl=configs.read(config.rl, RlConfig, "config.rl"),
        mesh=configs.read(config.mesh, MeshConfig, "config.mesh"),
    )
    for section in (settings.rl, settings.warmup):
        if section is not None:
            decoder.check_remat(section.remat)
    registry.check_notes(settings.credit, settings.notes.names)
    _check_draw(settings)
    _check_critic(settings)
    _check_trunk(settings.rl)
    _check_lora(config.policy, settings.rl.lora)
    rehearse(settings.credit, settings.loss, weights=settings.reward.weights, notes=settings.notes.names)
    if settings.notes.persistent != (settings.rl.values is not None):
        raise InputError(
            f"config.rl.values is {settings.rl.values} and config.notes {settings.notes.columns}: values of questions"
            f" are kept where a column is written by {PERSISTENT!r}, and only there; set both or neither"
        )
    if settings.notes.scored != (settings.scorer is not None):
        raise InputError(
            f"config.scorer is {settings.scorer} and config.notes {settings.notes.columns}: a scorer is asked where a"
            f" column is written by {LIKELIHOOD!r}, and only there; set both or neither"
        )
    if settings.warmup is not None and (config.task is None or "worlds" not in config.task):
        raise InputError("config.warmup demonstrates on worlds; set it to None where config.task.kind is not 'worlds'")
    return settings


def _check_draw(settings: Settings) -> None:
    """Refuses to take the log-probabilities of a cut distribution for those that the policy had."""
    if settings.sampling.draw.truncated and settings.loss.mismatch is None:
        raise InputError(
            f"config.sampling never draws some tokens ({settings.sampling.draw}), so that its log-probabilities are not"
            f" those of the policy; set config.loss.mismatch, which takes the policy's from the step and corrects for"
            f" the difference, or leave top_k at 0, top_p at 1 and min_p at 0"
        )


def _check_critic(settings: Settings) -> None:
    """Refuses a critic that is read and not trained, trained and not read, or without an optimizer."""
    name, reads, trains = settings.credit.estimator.name, settings.credit.chosen.critic, settings.loss.critic
    if reads and not trains:
        raise InputError(
            f"config.credit.estimator {name!r} reads a critic, and none of config.loss.terms trains one; add 'value'"
        )
    if trains and not reads:
        raise InputError(
            f"config.loss.terms train a critic, and config.credit.estimator {name!r} has no use for one; drop the term,"
            f" or choose an estimator that reads a critic, such as 'gae'"
        )
    if reads != (settings.rl.critic_optimizer is not None):
        raise InputError(
            f"config.rl.critic_optimizer is {settings.rl.critic_optimizer}, and config.credit.estimator {name!r} reads"
            f" {'a' if reads else 'no'} critic; set it where there is one, and only there"
        )


def _check_trunk(rl: RlConfig) -> None:
    """Refuses a critic without a trunk, a trunk without a critic, and one that there is not."""
    if (rl.critic_trunk is None) != (rl.critic_optimizer is None):
        raise InputError(
            f"config.rl.critic_trunk is {rl.critic_trunk!r} and config.rl.critic_optimizer {rl.critic_optimizer}: a"
            f" critic needs both; set the trunk to one of {', '.join(TRUNKS)}, or both to None where there is none"
        )
    if rl.critic_trunk not in (None, *TRUNKS):
        raise InputError(f"config.rl.critic_trunk {rl.critic_trunk!r}: unknown{nearest(rl.critic_trunk, TRUNKS)}")


def _check_lora(section: ConfigDict, config: LoraConfig | None) -> None:
    """Refuses an adapter of what a new model has not; imported ones are known once they are read."""
    if config is not None and "model" in section:
        fields = ConfigDict({**section.model, "vocab_size": section.vocab_size})
        lora.check(config, configs.read(fields, DecoderConfig, "config.policy.model"))


def check_shares(settings: Settings, mesh: Mesh, *, processes: int) -> None:
    """Checks that what a step holds can be shared out.

    Raises:
      InputError: rows that do not divide over the devices, or questions that do not divide among the processes.
    """
    devices = mesh.shape["data"] * mesh.shape["fsdp"]
    rows = {"config.rl.batch.block_rows": settings.rl.batch.block_rows}
    if settings.warmup is not None:
        rows["config.warmup.rows"] = settings.warmup.rows
    for where, count in rows.items():
        if count % devices:
            raise InputError(
                f"{where} is {count}, which does not divide over the {devices} devices of the axes data and fsdp of"
                f" config.mesh; make it a multiple, or the mesh smaller"
            )
    if settings.notes.persistent and processes > 1:
        raise InputError(
            f"config.notes has a column of {PERSISTENT!r}, whose values one process keeps, and there are {processes};"
            f" use one process, or another baseline"
        )
    if settings.rl.batch.questions % processes:
        raise InputError(
            f"config.rl.batch.questions is {settings.rl.batch.questions}, which does not divide among {processes}"
            f" processes"
        )
    _check_sequence(settings, mesh.shape["sequence"])


def _check_sequence(settings: Settings, parts: int) -> None:
    """Refuses rows whose tokens or targets cannot be shared out evenly."""
    sections = {"config.rl.batch": settings.rl.batch}
    if settings.warmup is not None:
        sections["config.warmup"] = settings.warmup
    for where, section in sections.items():
        for name in ("row_tokens", "row_targets"):
            if getattr(section, name) % parts:
                raise InputError(
                    f"{where}.{name} is {getattr(section, name)}, which does not divide over the {parts} devices of the"
                    f" axis sequence of config.mesh; make it a multiple, or the axis smaller"
                )


def check_sections(config: ConfigDict) -> None:
    """Refuses a config whose top level lacks a section or has one too many, naming the nearest."""
    for key in config:
        if key not in SECTIONS:
            raise InputError(f"config.{key}: unknown section{nearest(key, SECTIONS)}")
    if missing := SECTIONS - set(config):
        raise InputError(f"config: missing {', '.join(sorted(missing))}")
