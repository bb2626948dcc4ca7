"""Terms that compare the likelihoods of a question's episodes with their outcomes.

Axes: L paths. They are means over questions or episodes and know nothing of the reduction's weights; of an episode's
likelihood they read the tokens that count.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.errors import InputError, nearest
from rlsearch.losses import sequence
from rlsearch.losses.targets import Batch, Targets
from rlsearch.losses.terms import term
from rlsearch.tree import segments

PAIRS = ("extremes", "all")


@term(whole=True, reference=True)
def dpo(targets: Targets, batch: Batch, *, coefficient: float, beta: float, pairs: str) -> Float[Array, ""]:
    """``-log sigmoid(beta (d_better - d_worse))``, ``d = sum_t log pi(t) - log reference(t)`` of all its tokens.

    DPO, arXiv 2305.18290, equation 7, between the episodes of a question, of which one is better than another where its
    outcome is higher. ``pairs`` "extremes" compares the best with the worst (as in online iterative RLHF), "all" every
    better with every worse episode. Where several are best or worst, each pair of them counts, so that no order
    decides. The mean is over the pairs of a question, and then over the questions that have a pair; a group of one and
    one of equal outcomes have none. Memory is quadratic in the paths.
    """
    if pairs not in PAIRS:
        raise InputError(f"loss term dpo: pairs {pairs!r}: unknown{nearest(pairs, PAIRS)}")
    if beta <= 0:
        raise InputError(f"loss term dpo: beta {beta} must be above 0")
    chosen = _pairs(batch, extremes=pairs == "extremes")
    count = sequence.in_question(chosen.sum(axis=1).astype(jnp.float32), chosen.any(axis=1), batch)[:, None]
    weight = jnp.where(chosen, 1.0 / jnp.where(count > 0, count, 1.0), 0.0)
    d = sequence.total(targets.logp - targets.reference_logp, targets, batch)
    loss = jax.nn.softplus(-beta * (d[:, None] - d[None, :]))
    # The weights of each question sum to one.
    return coefficient * (weight * loss).sum() / jnp.maximum(weight.sum(), 1.0)


def _pairs(batch: Batch, *, extremes: bool) -> Bool[Array, "L L"]:
    """Whether the episode of the row is better than that of the column, and the two are compared."""
    outcome, question, use = batch.episodes.outcome, batch.episodes.question, sequence.counted(batch)
    better, worse = use, use
    if extremes:
        better = use & (outcome == segments.highest(outcome, use, batch.episodes.by_question))
        worse = use & (-outcome == segments.highest(-outcome, use, batch.episodes.by_question))
    same = question[:, None] == question[None, :]
    return same & better[:, None] & worse[None, :] & (outcome[:, None] > outcome[None, :])


@term(whole=True)
def pacs(
    targets: Targets, batch: Batch, *, coefficient: float, beta: float, above: float, balance: bool
) -> Float[Array, ""]:
    """Cross-entropy of ``psi`` as a logit with the outcome as label, averaged over episodes.

    PACS, arXiv 2509.02522: ``r_i = beta sum_t log pi(t) - log pi_old(t)`` over the tokens of episode i, ``psi_i = r_i -
    mean_{j != i} r_j`` over the other episodes of its question, loss ``log(1 + exp(psi_i)) - y_i psi_i``, where ``y_i``
    is 1 if the outcome is above ``above`` and otherwise 0. The gradient goes through the baseline too. As in the
    release, the ratio is to the policy before the update. With ``balance`` an episode weighs ``n / (2 n_same)``,
    where n_same of its question's n have its label, so that both labels weigh the same; where all agree it weighs 1.

    A group of one has no baseline, and is left out of the mean.
    """
    if beta <= 0:
        raise InputError(f"loss term pacs: beta {beta} must be above 0")
    member = sequence.counted(batch)
    n = sequence.over_question(member, batch)
    member = member & (n > 1)
    r = beta * sequence.total(targets.logp - targets.old_logp, targets, batch)
    psi = r - (sequence.in_question(r, member, batch) - r) / jnp.maximum(n - 1.0, 1.0)
    label = batch.episodes.outcome > above
    weight = jnp.ones_like(r)
    if balance:
        good = sequence.over_question(member & label, batch)
        same = jnp.where(label, good, n - good)
        weight = jnp.where((good == 0) | (good == n), 1.0, n / (2.0 * jnp.maximum(same, 1.0)))
    loss = weight * (jax.nn.softplus(psi) - jnp.where(label, psi, 0.0))
    return coefficient * jnp.where(member, loss, 0.0).sum() / jnp.maximum(member.sum(), 1)
