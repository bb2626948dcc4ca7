"""Clips: what a token's episode contributes to the objective, as a function of log-ratio and advantage.

Each takes log-ratios, advantages and the variance of the rewards in the token's question, of shapes that broadcast to
[..., K], and gives the value to be maximised. Gradients flow through the log-ratio alone. Widths are relative to
a ratio of 1: ``low`` below, ``high`` above.

GSPO (arXiv 2507.18071) is ``ppo`` at level "sequence" with widths of a few 1e-4, GSPO-token the same at level
"sequence_token", AT2PO (arXiv 2601.04767) ``ppo`` at level "turn".
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.errors import InputError

Value = Float[Array, "... K"]
Spread = Float[Array, "... 1"]


def none(log_ratio: Value, advantage: Value, spread: Spread) -> Value:
    """``ratio A``: importance sampling without a clip."""
    return jnp.exp(log_ratio) * advantage


def reinforce(log_ratio: Value, advantage: Value, spread: Spread) -> Value:
    """``A log pi``, up to a constant: the policy gradient without a ratio (Williams, 1992)."""
    return log_ratio * advantage


def ppo(log_ratio: Value, advantage: Value, spread: Spread, *, low: float, high: float) -> Value:
    """``min(ratio A, clip(ratio, 1 - low, 1 + high) A)``: PPO, arXiv 1707.06347, equation 7; with ``high > low`` it is
    DAPO's clip-higher, arXiv 2503.14476, equation 10.
    """
    _check(low=low, high=high)
    ratio = jnp.exp(log_ratio)
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - low, 1.0 + high) * advantage)


def dual(log_ratio: Value, advantage: Value, spread: Spread, *, low: float, high: float, bound: float) -> Value:
    """``ppo``, but ``max(that, bound A)`` where ``A < 0``, so that one unlikely token cannot weigh more than ``bound``.

    Dual-clip PPO, arXiv 1912.09729, equation 5; ``bound > 1``, 3 in the paper.
    """
    _check(low=low, high=high, bound=bound)
    clipped = ppo(log_ratio, advantage, spread, low=low, high=high)
    return jnp.where(advantage < 0, jnp.maximum(clipped, bound * advantage), clipped)


def cispo(log_ratio: Value, advantage: Value, spread: Spread, *, low: float, high: float) -> Value:
    """``sg(clip(ratio, 1 - low, 1 + high)) A log pi``: the ratio is clipped, every token keeps a gradient.

    CISPO, MiniMax-M1, arXiv 2506.13585, equation 4. The log-ratio stands for ``log pi``, which differs from it by a
    constant. With ``low`` 1 or more there is no bound below, as in the paper's runs.
    """
    _check(low=min(low, 1.0), high=high)
    weight = jnp.clip(jax.lax.stop_gradient(jnp.exp(log_ratio)), 1.0 - low, 1.0 + high)
    return weight * advantage * log_ratio


def aspo(log_ratio: Value, advantage: Value, spread: Spread, *, low: float, high: float, bound: float) -> Value:
    """Weight ``1 / ratio`` where ``A > 0`` and ``ratio`` elsewhere, so that unlikely good tokens gain most.

    ASPO, arXiv 2510.06062. As in its release, tokens beyond PPO's clip (``ratio > 1 + high`` where A > 0, ``ratio < 1 -
    low`` where A <= 0) have no gradient; the weight of the others is held at ``bound`` without losing theirs. The value
    is ``sg(weight) A`` and its gradient ``sg(weight) A`` times that of ``log pi``.
    """
    _check(low=low, high=high, bound=bound)
    good = advantage > 0
    inside = jnp.where(good, jnp.minimum(log_ratio, jnp.log1p(high)), jnp.maximum(log_ratio, jnp.log1p(-low)))
    weight = jnp.exp(jnp.where(good, -1.0, 1.0) * jax.lax.stop_gradient(inside))
    return jnp.minimum(weight, bound) * advantage * (1.0 + inside - jax.lax.stop_gradient(inside))


def elastic(
    log_ratio: Value, advantage: Value, spread: Spread, *, low: float, high: float, magnitude: float, variance: float
) -> Value:
    """``ppo`` with both widths times ``(1 + magnitude |A|) (1 + variance Var(rewards of the question))``.

    ETR, arXiv 2601.03723: elastic in the size of the advantage and in the variance of the group's rewards, p (1 - p)
    where they are 0 and 1. The two factors are linear here; the lower end stays at 0 or more.
    """
    _check(low=low, high=high)
    if min(magnitude, variance) < 0:
        raise InputError(f"clip elastic: magnitude {magnitude} and variance {variance} must be 0 or more")
    wide = (1.0 + magnitude * jnp.abs(advantage)) * (1.0 + variance * spread)
    ratio = jnp.exp(log_ratio)
    inside = jnp.clip(ratio, jnp.maximum(1.0 - low * wide, 0.0), 1.0 + high * wide)
    return jnp.minimum(ratio * advantage, inside * advantage)


def _check(*, low: float, high: float, bound: float = 2.0) -> None:
    if not (0 <= low <= 1 and high >= 0):
        raise InputError(f"clip: low {low} must lie in [0, 1] and high {high} must be 0 or more")
    if bound <= 1:
        raise InputError(f"clip: bound {bound} must be above 1, the ratio of a policy that has not moved")


CLIPS = {
    "ppo": ppo, "none": none, "reinforce": reinforce, "dual": dual, "cispo": cispo, "aspo": aspo, "elastic": elastic,
}  # fmt: skip
