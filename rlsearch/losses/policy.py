"""The clipped policy objective over targets. Axes: B rows, S targets."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.errors import InputError, nearest
from rlsearch.losses import kl, reduce


@dataclass(frozen=True)
class LossConfig:
    """The choices that make the objective."""

    clip_low: float  # the ratio counts down to 1 - clip_low
    clip_high: float  # and up to 1 + clip_high
    kl_coefficient: float  # weight of the KL to the reference policy; 0 keeps no reference
    kl_estimator: str  # one of kl.ESTIMATORS
    entropy_coefficient: float  # weight of the entropy bonus
    reduction: str  # one of reduce.REDUCTIONS

    def __post_init__(self):
        kl.check(self.kl_estimator)
        if self.reduction not in reduce.REDUCTIONS:
            raise InputError(
                f"config.loss.reduction {self.reduction!r}: unknown{nearest(self.reduction, reduce.REDUCTIONS)}"
            )
        if not (0 <= self.clip_low <= 1 and self.clip_high >= 0):
            raise InputError(
                f"config.loss: clip_low {self.clip_low} and clip_high {self.clip_high} must be in [0, 1] and >= 0"
            )


def clipped(
    ratio: Float[Array, "B S"],
    positive: Float[Array, "B S"],
    negative: Float[Array, "B S"],
    *,
    low: float,
    high: float,
) -> Float[Array, "B S"]:
    """PPO's surrogate (arXiv 1707.06347, equation 7), ``min(ratio A, clip(ratio) A)``, for advantages summed by sign.

    For A >= 0 the minimum is ``A min(ratio, 1 + high)``, for A < 0 it is ``A max(ratio, 1 - low)``: both are linear in
    A, so that sums over the episodes that share a token may be taken first, each sign apart.
    """
    return positive * jnp.minimum(ratio, 1.0 + high) + negative * jnp.maximum(ratio, 1.0 - low)


def objective(
    config: LossConfig,
    *,
    logp: Float[Array, "B S"],
    behavior_logp: Float[Array, "B S"],
    reference_logp: Float[Array, "B S"] | None,
    entropy: Float[Array, "B S"],
    positive: Float[Array, "B S"],
    negative: Float[Array, "B S"],
    weight: Float[Array, "B S"],
    use: Bool[Array, "B S"],
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The loss and the sums that metrics are made of, over the targets marked by ``use``.

    Weights come from ``credit``; they hold the reduction, so that losses of parts of a batch add up to the whole's.
    """
    gap = jnp.where(use, logp - behavior_logp, 0.0)
    ratio = jnp.exp(gap)
    weight = jnp.where(use, weight, 0.0)
    surrogate = clipped(
        ratio, jnp.where(use, positive, 0.0), jnp.where(use, negative, 0.0), low=config.clip_low, high=config.clip_high
    )
    loss = -surrogate.sum() - config.entropy_coefficient * (weight * jnp.where(use, entropy, 0.0)).sum()
    sums = {
        "targets": use.sum().astype(jnp.float32),
        "entropy": jnp.where(use, entropy, 0.0).sum(),
        "logp_gap": jnp.abs(gap).sum(),
        "clip_fraction": (use & ((ratio < 1 - config.clip_low) | (ratio > 1 + config.clip_high)))
        .sum()
        .astype(jnp.float32),
        "kl": jnp.float32(0.0),
    }
    if reference_logp is not None:
        penalty = jnp.where(
            use, kl.estimate(config.kl_estimator, jnp.where(use, logp, 0.0), jnp.where(use, reference_logp, 0.0)), 0.0
        )
        loss += config.kl_coefficient * (weight * penalty).sum()
        sums["kl"] = penalty.sum()
    return loss, sums


def supervised(*, logp: Float[Array, "B S"], use: Bool[Array, "B S"], count: Float[Array, ""]) -> Float[Array, ""]:
    """Mean negative log-likelihood of the targets; ``count`` is the number of targets in the whole batch."""
    return -jnp.where(use, logp, 0.0).sum() / count
