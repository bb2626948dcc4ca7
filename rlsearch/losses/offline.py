"""Objectives that learn from given episodes: of a best-of-n, of a data set, of another source. They replace the clip.

Axes: L paths, K paths through a target's node.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.credit import algebra, steps
from rlsearch.errors import InputError, nearest
from rlsearch.losses import sequence
from rlsearch.losses.clip import ppo
from rlsearch.losses.targets import Batch, Targets
from rlsearch.losses.terms import term

stop = jax.lax.stop_gradient
RATIOS = ("sequence", "token")
BASELINES = ("mean", "note")
BEHAVIOURS = ("estimated", "recorded")


@term()
def oreal(
    targets: Targets, batch: Batch, *, coefficient: float, above: float, negative: float, multiply: bool
) -> Float[Array, ""]:
    """``mean over positives of -log pi(t) - negative mean over negatives of A log(pi(t) / pi_old(t))``.

    OREAL, arXiv 2502.06781, with its release: correct samples of a best-of-n are cloned; of wrong ones the reward is
    reshaped to ``A_i = r_i - mean_{j != i} r_j`` over the question's scored episodes, r being 1 where the outcome is
    above ``above`` and otherwise 0, so that ``A = -n_correct / (n - 1)``: a wrong answer to what is mostly answered
    right is pushed down most. Its policy gradient is that of the log-ratio, as in the paper; no ratio weighs it. With
    ``multiply`` the cloning is weighed by A too, as in the release's configs. In a group of one A is 0.

    Both means are over tokens, weighed as the reduction weighs them (its "token" is the release's), each with weights
    that sum to one over its own episodes. The KL to the reference is ``loss.kl``. Not covered: the learned reward model
    that weighs tokens.
    """
    positive = batch.episodes.scored & (batch.episodes.outcome > above)
    n = sequence.over_question(batch.episodes.vote, batch)
    share = positive.astype(jnp.float32)
    others = sequence.in_question(share, batch.episodes.vote, batch) - share
    shaped = jnp.where(n > 1, share - others / jnp.maximum(n - 1.0, 1.0), 0.0)
    cloned = sequence.weighted_mean(
        targets.logp[..., None], shaped if multiply else jnp.ones_like(shaped), positive, targets, batch
    )  # fmt: skip
    log_ratio = (targets.logp - targets.old_logp)[..., None]
    unlearned = sequence.weighted_mean(log_ratio, shaped, batch.episodes.scored & ~positive, targets, batch)
    return -coefficient * (cloned + negative * unlearned)


@term(whole=True, reference=True)
def a_lol(
    targets: Targets, batch: Batch, *, coefficient: float, ratio: str, clip: float, baseline: str
) -> Float[Array, ""]:
    """``-A sg(clip(ratio, 1 - clip, 1 + clip)) sum_t log pi(t)``, averaged over the episodes with ``A > 0``.

    A-LoL, arXiv 2305.14718, with its release: the whole episode is one action, ``ratio = pi / reference`` of it, ``A =
    R - V_reference(question)``; data of negative advantage is dropped. ``ratio`` "token" is A-LoL seq, where each token
    has its own ratio. ``baseline`` says what the reference policy's value is: "note", the note ``baseline`` (at the
    leaf), or "mean", the mean outcome of the question's scored episodes, with which a group of one and one of
    equal outcomes are dropped. Log-likelihoods are summed, not averaged, over an episode's tokens, so the
    reduction's weights are not read. A-LoL (KL) is ``a_lol_free`` with ``loss.kl``.
    """
    if ratio not in RATIOS:
        raise InputError(f"loss term a_lol: ratio {ratio!r}: unknown{nearest(ratio, RATIOS)}")
    if clip <= 0:
        raise InputError(f"loss term a_lol: clip {clip} must be above 0")
    x = stop(targets.logp - targets.reference_logp)

    def weight(log_ratio):
        return jnp.clip(jnp.exp(log_ratio), 1.0 - clip, 1.0 + clip)

    if ratio == "token":
        likelihood = sequence.total(weight(x) * targets.logp, targets, batch)
    else:
        likelihood = weight(sequence.total(x, targets, batch)) * sequence.total(targets.logp, targets, batch)
    return -coefficient * _mean_of_good(likelihood, batch, baseline)


@term(whole=True)
def a_lol_free(targets: Targets, batch: Batch, *, coefficient: float, baseline: str) -> Float[Array, ""]:
    """``-A sum_t log pi(t)``, averaged over the episodes with ``A > 0``: A-LoL (ref. free) of arXiv 2305.14718.

    No reference policy is kept for it. ``baseline`` as in ``a_lol``.
    """
    return -coefficient * _mean_of_good(sequence.total(targets.logp, targets, batch), batch, baseline)


def _mean_of_good(x: Float[Array, "L"], batch: Batch, baseline: str) -> Float[Array, ""]:
    """Mean of ``A x`` over the episodes whose advantage is positive, by more than rounding."""
    episodes = batch.episodes
    if baseline not in BASELINES:
        raise InputError(f"loss term a_lol: baseline {baseline!r}: unknown{nearest(baseline, BASELINES)}")
    if baseline == "note":
        value = sequence.noted(batch, "baseline")
        advantage = steps.settled(episodes.outcome - value, jnp.maximum(jnp.abs(episodes.outcome), jnp.abs(value)))
    else:
        centred, _ = algebra.relative(episodes.outcome, episodes.vote, episodes.by_question, scale=False)
        advantage = steps.settled(centred, steps.largest(episodes, episodes.outcome))
    good = sequence.counted(batch) & (advantage > 0)
    return jnp.where(good, advantage * x, 0.0).sum() / jnp.maximum(good.sum(), 1)


@term()
def rl_plus(
    targets: Targets, batch: Batch, *, coefficient: float, low: float, high: float, behaviour: str, power: float
) -> Float[Array, ""]:
    """PPO's clip on own episodes and ``2 pi / (pi_old + omega) A (1 - sg(pi))^power`` on those of an external source.

    RL-PLUS, arXiv 2508.00222, with its release. External episodes are those whose note ``external`` (at the leaf) is
    above 0. Their tokens are taken as sampled from an even mixture of the policy before the update and the source,
    omega. ``behaviour`` says what omega is: "estimated", ``(pi_old + 1) / 2``, as in the release, with which the ratio
    stays below 4; or "recorded", the probability that came with the token. The factor ``(1 - pi)^power`` makes the
    advantage large where the policy finds the token unlikely (0.5 in the release; 0 leaves it out). An own token has
    ``min(ratio A, clip(ratio, 1 - low, 1 + high) A)``.

    The advantages are credit's and the weights the reduction's, of every pair of token and episode, so a token that
    own and external episodes share has both parts. It stands in for the clip: set ``loss.clip`` to None.
    """
    if behaviour not in BEHAVIOURS:
        raise InputError(f"loss term rl_plus: behaviour {behaviour!r}: unknown{nearest(behaviour, BEHAVIOURS)}")
    if power < 0:
        raise InputError(f"loss term rl_plus: power {power} must be 0 or more")
    external = batch.at(sequence.noted(batch, "external") > 0, targets.node)
    # An external token may be far from the policy, and a ratio that nothing reads must not overflow.
    log_ratio = jnp.where(external | (targets.weight == 0), 0.0, (targets.logp - targets.old_logp)[..., None])
    own = ppo(log_ratio, targets.advantage, targets.spread[..., None], low=low, high=high)
    given = (_mixture_ratio(targets, behaviour) * _unlikely(targets, power))[..., None] * targets.advantage
    return -coefficient * (targets.weight * jnp.where(external, given, own)).sum()


def _mixture_ratio(targets: Targets, behaviour: str) -> Float[Array, "..."]:
    """The policy over the even mixture of the policy before the update and the source."""
    old = targets.old_logp
    omega = jnp.log(0.5 * (jnp.exp(old) + 1.0)) if behaviour == "estimated" else targets.behavior_logp
    return 2.0 * jnp.exp(targets.logp - jnp.logaddexp(old, omega))


def _unlikely(targets: Targets, power: float) -> Float[Array, "..."]:
    """``(1 - pi)^power``; a probability that rounding has put above 1 is 1."""
    return jnp.maximum(1.0 - jnp.exp(stop(targets.logp)), 0.0) ** power
