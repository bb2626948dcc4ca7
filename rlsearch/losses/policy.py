"""The objective: level, clip, regularisers and reduction, each chosen on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.config import Call
from rlsearch.errors import InputError, nearest
from rlsearch.losses import critic, kl, likelihood, offline, preference  # noqa: F401  (they register terms)
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
            if (value := getattr(self, field)) not in known:
                raise InputError(f"config.loss.kl.{field} {value!r}: unknown{nearest(value, known)}")
        if self.coefficient < 0:
            raise InputError(f"config.loss.kl.coefficient {self.coefficient} is negative, which rewards leaving")


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


TOKENS, INDEX = jax.ShapeDtypeStruct((1, 1), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.int32)
KEYS = ("level", "clip", "mismatch", "reduction", "kl", "entropy", "terms")


def read(section: ConfigDict, where: str = "config.loss") -> LossConfig:
    """Reads the section of a config.

    Raises:
      InputError: a choice that is unknown, a key too many or one too few, an option that cannot be, or a choice that
        another one would leave without effect.
    """
    for key in section:
        if key not in KEYS:
            raise InputError(f"{where}.{key}: unknown key{nearest(key, KEYS)}")
    if missing := [key for key in KEYS if key not in section]:
        raise InputError(f"{where}: missing {', '.join(missing)}; it needs every one of: {', '.join(KEYS)}")
    if section.level not in LEVELS:
        raise InputError(f"{where}.level {section.level!r}: unknown{nearest(str(section.level), LEVELS)}")
    functions = {name: term.function for name, term in TERMS.items()}
    config = LossConfig(
        level=section.level,
        clip=_call(section.clip, CLIPS, f"{where}.clip", TOKENS, TOKENS, TOKENS),
        mismatch=_call(section.mismatch, CORRECTIONS, f"{where}.mismatch", TOKENS),
        reduction=_call(section.reduction, REDUCTIONS, f"{where}.reduction", TOKENS, INDEX, TOKENS),
        kl=None if section.kl is None else _kl(section.kl, f"{where}.kl"),
        entropy=float(section.entropy),
        terms=tuple(
            configs.read_call(ConfigDict(term), functions, f"{where}.terms[{i}]")
            for i, term in enumerate(section.terms)
        ),
    )
    _check(config, where)
    return config


def _call(section: ConfigDict | None, functions: Mapping[str, Callable], where: str, *shapes: Any) -> Call | None:
    """Reads a choice, and has it look at its options by tracing it on arguments of these shapes."""
    if section is None:
        return None
    call = configs.read_call(section, functions, where)
    jax.eval_shape(call, *shapes)
    return call


def _kl(section: ConfigDict, where: str) -> KlConfig:
    if "weights" not in section:
        raise InputError(f"{where}: missing weights; one of: {', '.join(sorted(kl.WEIGHTS))}")
    weights = _call(section.weights, kl.WEIGHTS, f"{where}.weights", TOKENS, TOKENS)
    return configs.read(ConfigDict({**section, "weights": weights}), KlConfig, where)


def _check(config: LossConfig, where: str) -> None:
    """Refuses choices that others would leave without effect."""
    if config.reduction is None:
        raise InputError(f"{where}.reduction is None; name one of: {', '.join(sorted(REDUCTIONS))}")
    if config.clip is None:
        if not config.terms:
            raise InputError(f"{where}: neither a clip nor terms, so there is nothing to minimise; name one of them")
        if config.mismatch is not None:
            raise InputError(f"{where}.mismatch {config.mismatch.name!r} corrects the clip, and clip is None; set both")
        if config.level != "token":
            raise InputError(f"{where}.level {config.level!r} is that of the clip's ratio; without a clip set 'token'")
    elif config.clip.name == "reinforce" and config.level == "sequence_token":
        raise InputError(f"{where}: clip 'reinforce' has no ratio, and so level 'sequence_token' is 'token'; set that")


def penalty(
    config: LossConfig, use: Bool[Array, "M R S"], old_logp: Float[Array, "M R S"],
    reference_logp: Float[Array, "M R S"] | None,
) -> Float[Array, "M R S"] | None:  # fmt: skip
    """What the KL takes from the reward at each token, where it has its place there."""
    if config.kl is None or config.kl.place != "reward":
        return None
    logp, other = (jnp.where(use, x, 0.0) for x in (old_logp, reference_logp))
    weight = config.kl.coefficient * config.kl.weights(logp, other)
    return jnp.where(use, weight * kl.estimate(config.kl.estimator, logp, other), 0.0)


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
        sums[f"term_{term.name}"] = sums.get(f"term_{term.name}", 0.0) + found
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
