"""The objective: level, clip, regularisers and reduction, each chosen on its own."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.config import Call
from rlsearch.errors import InputError, nearest
from rlsearch.losses import kl
from rlsearch.losses.clip import CLIPS
from rlsearch.losses.level import LEVELS
from rlsearch.losses.mismatch import CORRECTIONS
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.losses.targets import Batch, Targets
from rlsearch.losses.terms import TERMS


@dataclass(frozen=True)
class KlConfig:
    """A penalty on leaving the reference policy."""

    coefficient: float
    estimator: str  # one of kl.ESTIMATORS
    place: str  # one of kl.PLACES
    weights: Call  # of kl.WEIGHTS: how much each token's KL counts

    def __post_init__(self):
        for field, known in (("estimator", kl.ESTIMATORS), ("place", kl.PLACES)):
            if getattr(self, field) not in known:
                value = getattr(self, field)
                raise InputError(f"config.loss.kl.{field} {value!r}: unknown{nearest(value, known)}")


@dataclass(frozen=True)
class LossConfig:
    """The choices that make the objective; ``read`` makes one from a config."""

    level: str  # of the importance ratio: one of LEVELS
    clip: Call | None  # of CLIPS; None leaves the objective to the terms
    mismatch: Call | None  # of CORRECTIONS
    reduction: Call  # of REDUCTIONS
    kl: KlConfig | None
    entropy: float  # weight of the entropy bonus
    terms: tuple[Call, ...]  # of TERMS, each with its coefficient

    @property
    def whole(self) -> bool:
        """Whether the loss of a token depends on tokens that may lie in other blocks."""
        return LEVELS[self.level].whole or any(TERMS[term.name].whole for term in self.terms)

    @property
    def reference(self) -> bool:
        """Whether a reference policy is kept."""
        return self.kl is not None or any(TERMS[term.name].reference for term in self.terms)

    @property
    def critic(self) -> bool:
        """Whether a term trains or reads a critic."""
        return any(TERMS[term.name].critic for term in self.terms)


def read(section: ConfigDict, where: str = "config.loss") -> LossConfig:
    """Reads the section of a config.

    Raises:
      InputError: a choice that is unknown, a key too many or one too few, or a pair that contradicts itself.
    """
    known = ("level", "clip", "mismatch", "reduction", "kl", "entropy", "terms")
    for key in section:
        if key not in known:
            raise InputError(f"{where}.{key}: unknown key{nearest(key, known)}")
    if missing := [key for key in known if key not in section]:
        raise InputError(f"{where}: missing {', '.join(missing)}; it needs every one of: {', '.join(known)}")
    if section.level not in LEVELS:
        raise InputError(f"{where}.level {section.level!r}: unknown{nearest(str(section.level), LEVELS)}")

    def call(key, functions):
        return None if section[key] is None else configs.read_call(section[key], functions, f"{where}.{key}")

    functions = {name: term.function for name, term in TERMS.items()}
    clip = call("clip", CLIPS)
    terms = tuple(
        configs.read_call(ConfigDict(term), functions, f"{where}.terms[{i}]") for i, term in enumerate(section.terms)
    )
    if clip is None and not terms:
        raise InputError(f"{where}: neither a clip nor terms, so there is nothing to minimise; name one of them")
    reduction = call("reduction", REDUCTIONS)
    if reduction is None:
        raise InputError(f"{where}.reduction is None; name one of: {', '.join(sorted(REDUCTIONS))}")
    penalty = None
    if section.kl is not None:
        weights = configs.read_call(section.kl.weights, kl.WEIGHTS, f"{where}.kl.weights")
        fields = ConfigDict({key: section.kl[key] for key in section.kl if key != "weights"})
        penalty = KlConfig(weights=weights, **_kl_fields(fields, where))
    return LossConfig(
        level=section.level, clip=clip, mismatch=call("mismatch", CORRECTIONS), reduction=reduction, kl=penalty,
        entropy=float(section.entropy), terms=terms,
    )  # fmt: skip


def _kl_fields(fields: ConfigDict, where: str) -> dict:
    @dataclass(frozen=True)
    class Fields:
        coefficient: float
        estimator: str
        place: str

    return vars(configs.read(fields, Fields, f"{where}.kl"))


def objective(config: LossConfig, targets: Targets, batch: Batch) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The loss over some targets and the sums that metrics are made of.

    Weights come from ``credit``; they hold the reduction, so that losses of parts of a batch add up to the whole's
    (where ``config.whole``, all targets must be given at once).
    """
    use, share = targets.use, targets.share
    gap = jax.lax.stop_gradient(targets.logp - targets.behavior_logp)
    loss = -config.entropy * (share * targets.entropy).sum()
    sums = {
        "targets": use.sum().astype(jnp.float32),
        "entropy": targets.entropy.sum(),
        "logp_gap": jnp.abs(gap).sum(),
        "clip_fraction": jnp.float32(0.0),
        "kl": jnp.float32(0.0),
    }
    if config.clip is not None:
        log_ratio = LEVELS[config.level].function(targets, batch)
        spread = targets.spread[..., None]
        surrogate = config.clip(log_ratio, targets.advantage, spread)
        factor = 1.0
        if config.mismatch is not None:
            correction = config.mismatch(jax.lax.stop_gradient(targets.old_logp - targets.behavior_logp))
            sums["correction"] = jnp.where(use, correction, 0.0).sum()
            factor = correction[..., None]
        loss -= (jnp.where(targets.weight > 0, surrogate, 0.0) * targets.weight * factor).sum()
        sums["clip_fraction"] = _unmoved(config.clip, log_ratio, targets, use)
    if config.kl is not None:
        penalty = kl.estimate(config.kl.estimator, targets.logp, targets.reference_logp)
        weights = config.kl.weights(targets.logp, targets.reference_logp)
        sums["kl"] = jnp.where(use, penalty, 0.0).sum()
        if config.kl.place == "loss":
            loss += config.kl.coefficient * (share * jax.lax.stop_gradient(weights) * penalty).sum()
    for term in config.terms:
        found = term(targets, batch)
        loss += found
        # Sums are divided by the number of targets, which a term is not.
        sums[f"term_{term.name}"] = found
    return loss, sums


def _unmoved(clip: Call, log_ratio, targets: Targets, use: Bool[Array, "..."]) -> Float[Array, ""]:
    """Targets with an episode for which the clip lets no gradient through although it has an advantage."""
    log_ratio = jnp.broadcast_to(jax.lax.stop_gradient(log_ratio), targets.advantage.shape)
    slope = jax.grad(lambda x: clip(x, targets.advantage, targets.spread[..., None]).sum())(log_ratio)
    still = (slope == 0) & (targets.advantage != 0) & (targets.weight > 0)
    return (use & still.any(axis=-1)).sum().astype(jnp.float32)


def supervised(*, logp: Float[Array, "B S"], use: Bool[Array, "B S"], count: Float[Array, ""]) -> Float[Array, ""]:
    """Mean negative log-likelihood of the targets; ``count`` is the number of targets in the whole batch."""
    return -jnp.where(use, logp, 0.0).sum() / count
