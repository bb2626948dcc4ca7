"""Estimators that normalise over the batch or over a task, after a baseline of the question.

Axes: L paths. A batch is all of its scored episodes, those of questions with equal rewards among them, as in the
papers. So none of these estimators is ``outcome``: such a question has advantages of exactly 0, and is still needed
for the deviation that divides all the others.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.credit import algebra
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.group import among
from rlsearch.credit.registry import estimator
from rlsearch.tree import segments
from rlsearch.tree.segments import Groups


def rescaled(value: Float[Array, "L"], use: Bool[Array, "L"]) -> Float[Array, "L"]:
    """Values whose mean over ``use`` is 0 by construction, divided by their deviation over the batch.

    The mean is not subtracted again: it would be rounding, and make something of exact zeros.
    """
    square = jnp.where(use, jnp.square(value), 0.0).sum() / jnp.maximum(use.sum(), 1)
    return value / jnp.where(square > 0, jnp.sqrt(square), 1.0)


@estimator("batch")
def reinforce_baseline(episodes: Episodes) -> Advantages:
    """REINFORCE++ with baseline: ``A_i = c_i / std(c over the batch)``, ``c_i = r_i - mean(r of the question)``.

    arXiv 2501.03262, section on the variant with baseline. Each episode counts once in the deviation, however long.
    """
    value, varies = among(episodes, episodes.by_question, scale=False)
    return algebra.advantages(episodes, episodes.everywhere(rescaled(value, episodes.vote)), varies)


@estimator("batch")
def batch_normalised(episodes: Episodes) -> Advantages:
    """BN-GSPO: the advantage of GRPO, normalised again over the batch: ``A_i / std(A over the batch)``.

    SenseNova-MARS, arXiv 2512.24330. The second step makes the batch's deviation 1, however many of its questions have
    equal rewards. The ratio that goes with it is that of GSPO, a choice of the loss.
    """
    value, varies = among(episodes, episodes.by_question, scale=True)
    return algebra.advantages(episodes, episodes.everywhere(rescaled(value, episodes.vote)), varies)


def surprise(episodes: Episodes) -> Float[Array, "L"]:
    """Reward minus the question's persistent baseline (note ``baseline``, at its leaves)."""
    return jnp.where(episodes.scored, episodes.reward - episodes.note("baseline")[episodes.leaf], 0.0)


@estimator("batch", notes=("baseline",))
def persistent(episodes: Episodes) -> Advantages:
    """``A_i = (d_i - mean(d)) / std(d)`` over the batch, with ``d_i = r_i - v(question)``: no group is needed.

    SPO, arXiv 2509.13232, section 3. Note ``baseline`` (at the leaves): the value that a tracker held of the question
    before this batch. A batch of one episode, or in which all d are equal, is worth 0.
    """
    whole = jnp.zeros_like(episodes.question)
    value, varies = algebra.relative(surprise(episodes), episodes.vote, Groups(whole, 1), scale=True)
    return algebra.advantages(episodes, episodes.everywhere(value), varies)


@estimator("batch", notes=("baseline",))
def persistent_weighted(episodes: Episodes) -> Advantages:
    """As ``persistent``, with mean and deviation over the sampled tokens: an episode of n tokens counts n times.

    SPO++: ``A_i = (d_i - m) / s``, ``m = sum(n d) / sum(n)``, ``s^2 = sum(n (d - m)^2) / sum(n)``. So the mean over
    tokens of the advantage is 0 and its mean square is 1. All contexts of an episode count, and an episode without
    tokens does not. That evidence is ordered by the version of the policy which made it belongs to the tracker.
    """
    difference = surprise(episodes)
    length = jnp.where(episodes.scored, episodes.tokens.sum(axis=1), 0.0)
    counts, total = length > 0, jnp.maximum(length.sum(), 1.0)
    high = jnp.where(counts, difference, -jnp.inf).max()
    constant = high <= jnp.where(counts, difference, jnp.inf).min()
    mean = jnp.where(jnp.isfinite(high), high, 0.0)
    for _ in range(2):  # the second time takes what rounding the first has left
        mean = mean + (length * (difference - mean)).sum() / total
    deviation = jnp.sqrt((length * jnp.square(difference - mean)).sum() / total)
    value = jnp.where(constant, 0.0, (difference - mean) / jnp.where(constant, 1.0, deviation))
    return algebra.advantages(episodes, episodes.everywhere(value), jnp.broadcast_to(~constant, value.shape))


@estimator("batch", notes=("task",))
def task_reweighted(episodes: Episodes, *, smoothing: float, strength: float) -> Advantages:
    """TMN-Reweight: ``A_i = w_i (r_i - mean_q) / sqrt(mean over the task's questions of var_q)``.

    GoLongRL, arXiv 2605.19577, with the details of its released code. The pass rate ``p_q`` is the share of the
    question's rewards above ``t_q = smoothing x mean_q + (1 - smoothing) x mean over the task's questions of mean_q``;
    ``w_i = exp(strength x (1/2 - p_q))`` where ``r_i > mean_q`` and ``exp(strength x (p_q - 1/2))`` elsewhere, so that
    what is rare for the question weighs more. Note ``task`` (at the leaves): any number that names the task; episodes
    of one question in two tasks are two questions. Chosen here: variances are the population's; a question with one
    episode has advantage 0 and is in no mean; above means by more than rounding, 1e-5 of the largest reward.
    """
    task = episodes.note("task")[episodes.leaf]
    group, tasks = algebra.partition(episodes.question, task), algebra.partition(task)
    reward, vote, size = episodes.reward, episodes.vote, group.shape[0]
    questions, tasks = Groups(group, size), Groups(tasks, size)
    found = segments.moments(reward, vote, questions)
    row = jnp.arange(size)
    first = row == jax.ops.segment_min(jnp.where(vote, row, size), group, size)[group]
    stands = first & (found.count > 1)  # one vote for each question
    variance = segments.mean(jnp.where(found.constant, 0.0, jnp.square(found.deviation)), stands, tasks)
    usual = segments.mean(found.mean, stands, tasks)
    above = reward - (usual + smoothing * (found.mean - usual)) > 1e-5 * jnp.abs(reward).max()
    rate = segments.total(above.astype(jnp.float32), vote, questions) / jnp.maximum(found.count, 1.0)
    centred = jnp.where(found.constant, 0.0, reward - found.mean)
    weight = jnp.exp(strength * jnp.where(centred > 0, 0.5 - rate, rate - 0.5))
    value = weight * centred / jnp.where(variance > 0, jnp.sqrt(variance), 1.0)
    return algebra.advantages(episodes, episodes.everywhere(value), ~found.constant)
