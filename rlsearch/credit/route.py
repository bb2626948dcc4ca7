"""Estimators that decide which nodes of an episode its outcome reaches, and which it must not reach.

Axes: L paths, D depths. A mark in a note is a value above 0. A node is the smallest thing that credit is routed to;
``tree.spans`` makes nodes of the spans of a turn. A context of an episode is a path, and is judged by its own marks.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.credit import algebra, steps
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.group import among
from rlsearch.credit.registry import estimator
from rlsearch.credit.strata import refuse_penalty
from rlsearch.tree import paths as layouts
from rlsearch.tree import segments


def outcome(episodes: Episodes, *, scale: bool) -> tuple[Float[Array, "L"], Bool[Array, "L"]]:
    """GRPO's advantage with a sign that can be relied on, and whether the question varies.

    It is exactly 0 where the reward may differ from the question's mean by rounding alone.
    """
    value, varies = among(episodes, episodes.by_question, scale=scale)
    centred, _ = among(episodes, episodes.by_question, scale=False)
    differs = steps.settled(centred, steps.largest(episodes, episodes.reward)) != 0
    return jnp.where(differs, value, 0.0), varies


def marked(episodes: Episodes, name: str) -> Bool[Array, "L D"]:
    """Nodes whose note is above 0."""
    return episodes.along(episodes.note(name)) > 0


def since(mark: Bool[Array, "L D"]) -> Bool[Array, "L D"]:
    """From the first mark of each path on, that node included."""
    return jnp.cumsum(mark, axis=1) > 0


@estimator("route", notes=("fault",))
def first_error(
    episodes: Episodes, *, prefix_reward: float, pass_mark: float, margin: int, keep_prefix: bool
) -> Advantages:
    """``A_it = r_it - mean_j(r_j)``, where the verified prefix of a wrong rollout earns something of its own.

    VPPO, arXiv 2601.18984, equations 6 to 8. ``r_it`` is the reward of the episode, and ``prefix_reward`` (alpha) at
    the turns of a wrong one before its first fault; ``r_j`` is the mean of ``r_jt`` over the tokens of episode j, all
    its contexts together. There is no division by a deviation. Note ``fault`` (any node): above 0 where a step is
    wrong; from the first on, all is suffix. Faults of a right episode, and those behind the first, do not matter.

    The paper shortens the rewarded prefix by some tokens, so that steps are not split to earn more: here by ``margin``
    turns. A wrong episode in which no fault was found has no verified prefix. Its rewards are 0 and 1: others are kept
    as they are, and an episode is wrong below ``pass_mark``. A single wrong episode is told apart within itself.

    Args:
      episodes: the batch.
      prefix_reward: what a turn of the verified prefix earns.
      pass_mark: the least reward of a right episode.
      margin: turns before the fault that earn no more than the suffix.
      keep_prefix: the verified prefix is never pushed down: ``max(A, 0)`` there (equation 8).
    """
    acts, reward = episodes.acts, episodes.reward
    suffix = since(marked(episodes, "fault"))
    step = layouts.before(acts.astype(jnp.int32))
    error = jnp.where(suffix, step, step.shape[1]).min(axis=1)
    wrong = (reward < pass_mark) & suffix[:, -1]
    prefix = acts & wrong[:, None] & (step < (error - margin)[:, None])
    earned = jnp.where(prefix, prefix_reward, reward[:, None])
    length = episodes.over_episode(episodes.tokens)
    mean = episodes.over_episode(episodes.tokens * earned) / jnp.maximum(length, 1.0)
    mean = segments.mean(jnp.where(length > 0, mean, reward), episodes.vote, episodes.by_question)
    size = jnp.maximum(steps.largest(episodes, reward), abs(prefix_reward))
    value = steps.settled(earned - mean[:, None], size[:, None])
    if keep_prefix:
        value = jnp.where(prefix, jnp.maximum(value, 0.0), value)
    moves = episodes.scored & (acts & (value != 0)).any(axis=1)
    varies = segments.highest(moves.astype(jnp.float32), episodes.used, episodes.by_question) > 0
    return algebra.advantages(episodes, value, varies)


@estimator("route", notes=("channel",))
def channels(episodes: Episodes, *, scale: bool) -> Advantages:
    """``A_it = w_c (r_ic - mean(r_c)) / std(r_c)`` with c the channel of the node: one reward term for each.

    SkillGate: tokens that name a skill have an advantage of their own, and execution tokens that of the outcome; no
    token has both. Channel c is reward term c with its weight, relative to the question by itself, so that the scale of
    one says nothing about another. Note ``channel`` (at turns): number of the channel; every other value names none,
    and such nodes take no part. The paper could not be read: here every channel has GRPO's advantage, and that the
    skill's is positive only where the right skill alone was read is for its reward term to say.
    """
    refuse_penalty(episodes, "channels")
    terms = jnp.where(jnp.isnan(episodes.terms), 0.0, episodes.terms)
    channel, value = episodes.along(episodes.note("channel")), jnp.zeros(episodes.acts.shape)
    use, varies = jnp.zeros_like(episodes.acts), jnp.zeros_like(episodes.used)
    for c, weight in enumerate(episodes.weights):
        if weight:
            here = episodes.acts & (channel == c)
            found, differs = algebra.relative(terms[:, c], episodes.vote, episodes.by_question, scale=scale)
            value, use = jnp.where(here, weight * found[:, None], value), use | here
            varies = varies | (differs & here.any(axis=1))
    return algebra.advantages(episodes, value, varies, use)


@estimator("route", notes=("channel",), outcome=True)
def answer_masked(episodes: Episodes, *, scale: bool) -> Advantages:
    """GRPO's advantage, in which the tokens of the answer take no part: ``m_t = 0`` there, in every term of the loss.

    OM-GRPO, arXiv 2608.03119: without labels the reward is the policy's own consensus, which it could raise by making
    the answer more likely instead of reasoning better. Note ``channel`` (at turns): 1 where the node is the answer, as
    the note writer ``answers_now`` has it for whole turns, and any other value elsewhere.
    """
    value, varies = among(episodes, episodes.by_question, scale=scale)
    use = episodes.along(episodes.note("channel")) != 1
    return algebra.advantages(episodes, episodes.everywhere(value), varies, use)


@estimator("route", notes=("channel",), outcome=True)
def summary_action(
    episodes: Episodes, *, summary_weight: float, action_weight: float, apart: bool, scale: bool
) -> Advantages:
    """``A_it = lambda A_i`` at summaries and ``mu A_i`` at actions, ``A_i`` GRPO's.

    FoldAct, arXiv 2512.22733: ``L = lambda L_summary + (1 - lambda) L_action``, so that the few tokens of summaries are
    not drowned. There each loss is the mean over its own tokens; ``apart`` gives that with the reduction ``token``: a
    weight is multiplied by (all tokens / tokens of its kind), both counted over the episodes of questions that vary. A
    positive factor goes through the clip, so it is the same objective. Terms that do not read the advantage, such as
    KL, are not weighted. Note ``channel`` (at turns): 1 where the node is a summary; every other value is an action.
    """
    value, varies = among(episodes, episodes.by_question, scale=scale)
    summary = episodes.along(episodes.note("channel")) == 1
    tokens = jnp.where((episodes.scored & varies)[:, None], episodes.tokens, 0.0)
    factors = []
    for kind, weight in ((summary, summary_weight), (~summary, action_weight)):
        share = tokens.sum() / jnp.maximum(jnp.where(kind, tokens, 0.0).sum(), 1.0)
        factors.append(weight * share if apart else weight)
    return algebra.advantages(episodes, value[:, None] * jnp.where(summary, *factors), varies)


@estimator("route", notes=("support",), outcome=True)
def evidence(episodes: Episodes, *, negative: float, keep_last: bool, scale: bool) -> Advantages:
    """``A_it = max(A_i, 0) s_t + negative min(A_i, 0)``: positive credit flows only along the trace that was used.

    ECHO, arXiv 2606.31650: an episode better than its group reinforces the turns whose records the last context was
    rebuilt from, the tokens that recorded and selected them, and the last segment; one that is not has no update, which
    is ``negative`` 0, and that share of its plain advantage otherwise. Note ``support`` (at turns): ``s_t``, 1 at the
    turns of that trace, less where credit is discounted along it; it is clipped to [0, 1]. With ``keep_last`` the last
    turn of each context has 1. Nodes without credit take no part.
    """
    value, varies = outcome(episodes, scale=scale)
    share = jnp.clip(episodes.along(episodes.note("support")), 0.0, 1.0)
    if keep_last:
        share = jnp.where(steps.last_act(episodes), 1.0, share)
    good, bad = (value > 0)[:, None], (value < 0)[:, None] & (negative != 0)
    credit = jnp.where(good, value[:, None] * share, jnp.where(bad, negative * value[:, None], 0.0))
    return algebra.advantages(episodes, credit, varies, (good & (share > 0)) | bad)


@estimator("route", notes=("fatal",), outcome=True)
def fatal_aware(episodes: Episodes, *, scale: bool) -> Advantages:
    """``A_it = max(A_i, 0)`` before the fatal turn of a path that has one, and ``A_i`` on all others.

    Multi-turn fatal-aware GRPO of OpenSearch-VL, arXiv 2605.05185: tokens from the fatal turn on take no part, and
    what came before is reinforced if the episode still beats its group and never blamed for the tool. Note ``fatal``
    (any node): above 0 at the turn from which on nothing can be saved; there it is that of the third failed tool call
    in a row. The episode keeps its vote in the group.
    """
    value, varies = among(episodes, episodes.by_question, scale=scale)
    lost = since(marked(episodes, "fatal"))
    value = jnp.where(lost[:, -1], jnp.maximum(value, 0.0), value)
    return algebra.advantages(episodes, episodes.everywhere(value), varies, ~lost)
