"""Estimators that compare an episode, a turn or an answer only with those that stood where it stood.

Axes: N nodes, L paths, D depths. Strata are named by numbers: entries with the same number are compared.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.credit import algebra
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.group import among
from rlsearch.credit.registry import estimator
from rlsearch.errors import InputError
from rlsearch.tree import paths as layouts
from rlsearch.tree.segments import Groups


@estimator("strata", notes=("stratum",), outcome=True)
def stratified(episodes: Episodes, *, blend: float) -> Advantages:
    """``A_i = blend x (r_i - mean_s) / std_s + (1 - blend) x (r_i - mean_q) / std_q``: of its stratum, of its question.

    Stratified GRPO, arXiv 2510.06214: stratified advantage normalisation (SAN) and its linear blend with the global
    one. Note ``stratum`` (at the leaf), for example the number of searches; strata lie within the question. A stratum
    of one episode, or of equal rewards, adds nothing of its own, and the global part still counts.
    """
    strata = algebra.partition(episodes.question, episodes.note("stratum")[episodes.leaf])
    inside, varies_inside = among(episodes, Groups(strata, strata.shape[0]), scale=True)
    across, varies_across = among(episodes, episodes.by_question, scale=True)
    varies = varies_inside if blend == 1.0 else varies_across
    return algebra.advantages(episodes, episodes.everywhere(blend * inside + (1.0 - blend) * across), varies)


def refuse_penalty(episodes: Episodes, name: str) -> None:
    """Estimators of separate terms have no place for a KL penalty inside the reward.

    Raises:
      InputError: there is one.
    """
    if episodes.penalty is not None:
        raise InputError(f"config.credit.estimator {name!r} reads reward terms one by one: use KL in the loss instead")


@estimator("strata", notes=("channel",))
def outcome_conditioned(episodes: Episodes, *, scale: bool) -> Advantages:
    """``A_i at a node of objective j = w_j (r_ij - mean_s) / std_s``, s: the outcomes of the objectives before j.

    Blockwise Advantage Estimation with its outcome-conditioned baseline, arXiv 2602.10231. Objective j is reward term
    j with its weight. Note ``channel`` (at every node): index of the objective whose block the node is; all other
    values name none, and such nodes take no part. The first objective is compared within the question. A later one is
    compared within the episodes of the question whose earlier terms, those of weight 0 among them, are equal: they are
    the outcome that the prefix has fixed, so terms to be conditioned on should take few values. Chosen here: all
    earlier terms and not only the last; division by the deviation is an option.
    """
    refuse_penalty(episodes, "outcome_conditioned")
    terms = jnp.where(jnp.isnan(episodes.terms), 0.0, episodes.terms)
    channel, stratum = episodes.along(episodes.note("channel")), episodes.question
    value, use, varies = jnp.zeros(channel.shape), jnp.zeros_like(episodes.acts), jnp.zeros_like(episodes.used)
    size = max(episodes.paths.questions, channel.shape[0])
    for j, weight in enumerate(episodes.weights):
        if weight:
            block = episodes.acts & (channel == j)
            found, differs = algebra.relative(terms[:, j], episodes.vote, Groups(stratum, size), scale=scale)
            value, use = jnp.where(block, weight * found[:, None], value), use | block
            varies = varies | (differs & block.any(axis=1))
        stratum = algebra.partition(stratum, terms[:, j])
    return algebra.advantages(episodes, value, varies, use)


def step_rewards(episodes: Episodes) -> Float[Array, "L D"]:
    """Note ``step_reward`` at the nodes that the policy wrote, less what a KL penalty takes there; 0 elsewhere."""
    earned = episodes.note("step_reward")
    earned = earned if episodes.penalty is None else earned - episodes.penalty
    return jnp.where(episodes.acts, episodes.along(earned), 0.0)


@estimator("strata", notes=("subproblem", "step_reward"))
def subproblem(episodes: Episodes, *, progress: bool, scale: bool) -> Advantages:
    """``A_ik = (r_ik - mean_k) / std_k`` at the nodes that answer subproblem k, over all answers to it in the question.

    SCRL, arXiv 2605.22074: subproblem-level normalisation. Notes, at nodes: ``subproblem``, the index of what the node
    answers, below 0 for none (its tokens take no part); ``step_reward``, whose sum over the nodes of k on a path is
    ``r_ik``. With ``progress`` it is 0 where a subproblem begun earlier on the path earned nothing, so that only an
    unbroken chain of right answers counts. An index that an episode never reached is not counted as a failure there.
    """
    index = episodes.along(episodes.note("subproblem"))
    answers = episodes.acts & (index >= 0)
    same = answers[:, :, None] & answers[:, None, :] & (index[:, :, None] == index[:, None, :])
    reward = jnp.where(same, step_rewards(episodes)[:, None, :], 0.0).sum(axis=2)
    depth = jnp.arange(index.shape[1])[None]
    first = jnp.argmax(same, axis=2)
    if progress:
        failed = answers & (reward <= 0)
        broken = (failed[:, None, :] & (depth[:, None, :] < first[:, :, None])).any(axis=2)
        reward = jnp.where(broken, 0.0, reward)
    counts = answers & (first == depth) & episodes.scored[:, None]
    group = algebra.partition(jnp.asarray(episodes.nodes.question), episodes.note("subproblem"))
    value, varies = algebra.relative(reward, counts, Groups(episodes.along(group), group.shape[0]), scale=scale)
    return algebra.advantages(episodes, jnp.where(answers, value, 0.0), (varies & answers).any(axis=1), answers)


@estimator("strata", notes=("step_reward",))
def step_peer(episodes: Episodes, *, discount: float, scale: bool) -> Advantages:
    """``A_it = (G_it - mean_t) / std_t`` over peers at the same step, with ``G_it = r_it + discount x G_i,t+1``.

    SPADER, arXiv 2606.00593: step-wise peer advantage, with the details of its released code. A step is a node that
    the policy wrote; what the environment appends neither is one nor discounts. Note ``step_reward`` (at the nodes):
    what the step found, each find weighted by its rarity, ``a + b exp(-c (episodes that found it - 1))``: the writer of
    the note has to count over the group. The episode's reward is added at its last step. Peers are all episodes of
    the question, by their first context; one that has stopped has a return of 0 at the steps that it did not take.
    """
    acts = episodes.acts
    last = acts & (layouts.to_go(acts.astype(jnp.float32)) == 1)
    earned = step_rewards(episodes) + jnp.where(last, episodes.outcome[:, None], 0.0)
    returns = layouts.to_go(earned, jnp.where(acts, discount, 1.0))
    size, longest = acts.shape
    step = layouts.before(acts.astype(jnp.int32))
    slot = jnp.where(acts, step, longest)
    aligned = jnp.zeros(acts.shape).at[jnp.arange(size)[:, None], slot].set(returns, mode="drop")
    group = replace(episodes.by_question, columns=longest)
    peers = jnp.broadcast_to(episodes.vote[:, None], acts.shape)
    found = algebra.relative(aligned, peers, group, scale=scale)
    value, varies = (jnp.take_along_axis(x, step, axis=1, mode="clip") for x in found)
    return algebra.advantages(episodes, jnp.where(acts, value, 0.0), (varies & acts).any(axis=1))
