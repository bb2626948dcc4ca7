"""Estimators that give an outcome's advantage to other episodes or turns in other shares than it came in.

Axes: L paths, D depths.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.credit import algebra, steps
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.group import among
from rlsearch.credit.registry import estimator
from rlsearch.credit.route import marked, outcome
from rlsearch.errors import InputError
from rlsearch.tree import segments


def support(episodes: Episodes) -> Float[Array, "L D"]:
    """Note ``support`` at the turns of scored episodes; below 0 it is 0."""
    here = episodes.acts & episodes.scored[:, None]
    return jnp.where(here, jnp.maximum(episodes.along(episodes.note("support")), 0.0), 0.0)


@estimator("redistribution", notes=("support", "action"), outcome=True)
def self_credit(episodes: Episodes, *, strength: float, floor: float, scale: bool) -> Advantages:
    """``A_it = A_i max(1 + strength c_t k(a_t) sign(A_i), floor)``: citations count as far as they tell good from bad.

    Self-Credit: the policy's own summaries cite earlier turns, and what is cited by successes and failures alike says
    nothing. ``k(a) = (f+ - f-) / (f+ + f-)`` contrasts, within the question, how much action a is cited by a success
    (``f+``, mean over the episodes above the mean reward) and by a failure (``f-``, those below); each context is one
    of them. A success credits what successes cite; a failure blames what failures cite, and spares the former.

    Notes, at turns: ``support``, how much the turn is cited (``c_t``; below 0 it is 0); ``action``, a number that
    equal actions of a question share, below 0 for those that match none, which keep ``A_i``. The paper could not be
    read beyond this: the form of the contrast and of the weight are chosen here.
    """
    value, varies = outcome(episodes, scale=scale)
    cited, n = support(episodes), episodes.nodes.end.shape[0]
    action = episodes.note("action")
    key = episodes.along(algebra.partition(jnp.asarray(episodes.nodes.question), action))

    def each(side):
        count = segments.total(jnp.ones_like(value), side & episodes.scored, episodes.by_question)
        return jnp.where(side[:, None], cited, 0.0) / jnp.maximum(count, 1.0)[:, None]

    both = jnp.stack([each(value > 0), each(value < 0)], axis=-1)
    good, bad = jnp.moveaxis(jax.ops.segment_sum(both.reshape(-1, 2), key.reshape(-1), n)[key], -1, 0)
    told = (episodes.along(action) >= 0) & (good + bad > 0)
    contrast = jnp.where(told, (good - bad) / jnp.where(told, good + bad, 1.0), 0.0)
    weight = jnp.maximum(1.0 + strength * cited * contrast * jnp.sign(value)[:, None], floor)
    return algebra.advantages(episodes, value[:, None] * weight, varies)


@estimator("redistribution", notes=("rank",), outcome=True)
def graded(episodes: Episodes, *, decay: float, scale: bool) -> Advantages:
    """``A'_i = A_i w_i x (sum A / sum A w)`` over the question's episodes with ``A_i > 0``, ``w_i = decay^rank_i``.

    GAGAR: a grader ranks the passing rollouts of a group; those ranked lower weigh less, and all are rescaled so that
    the sum of the positive advantages over the question's episodes is what it was. The others are left as they are, so
    the group's sum is, too. Note ``rank`` (at the leaf): 0 for the best, equal ranks for ties; below 0 is not ranked,
    and counts as 0. A passing rollout is one above the group's mean. The paper could not be read: a geometric weight
    is chosen here. ``decay`` 1 is GRPO, and 0 leaves the best of the passing ones alone.
    """
    if not 0.0 <= decay <= 1.0:
        raise InputError(f"graded: decay {decay} is not between 0 and 1")
    value, varies = outcome(episodes, scale=scale)
    good = value > 0
    rank = jnp.maximum(episodes.note("rank")[episodes.leaf][episodes.episode], 0.0)
    best = -segments.highest(-rank, episodes.vote & good, episodes.by_question)
    weight = jnp.power(decay, jnp.where(good, rank - best, 0.0))

    def total(x):
        return segments.total(x, episodes.vote & good, episodes.by_question)

    mass = total(value * weight)
    rescaled = value * weight * total(value) / jnp.where(mass > 0, mass, 1.0)
    return algebra.advantages(episodes, episodes.everywhere(jnp.where(good, rescaled, value)), varies)


@estimator("redistribution", notes=("support",), outcome=True)
def mass_preserving(episodes: Episodes, *, floor: float, over: str, scale: bool) -> Advantages:
    """``A_it = A_i (floor + (1 - floor) s_t / mean(s))``: an episode's advantage in proportion to support.

    PAMO of MediateRec: spans that the private history supports, measured by masking it, get more of the advantage;
    its total and a floor are kept. The total is ``sum_t n_t A_it = A_i sum_t n_t`` over the turns of all contexts of
    the episode, and the mean is weighted likewise: ``n_t`` is the turn's tokens with ``over="tokens"``, whose sum is
    what a reduction by tokens trains, and 1 with ``over="nodes"``. An episode in which nothing has support keeps
    ``A_i``. Note ``support`` (at turns): how much of the turn the evidence carries; below 0 it is 0. The paper could
    not be read: that shares are proportional, and that the floor is a share of ``A_i``, are chosen here.
    """
    if over not in ("tokens", "nodes"):
        raise InputError(f"mass_preserving: over={over!r} is neither 'tokens' nor 'nodes'")
    if not 0.0 <= floor <= 1.0:
        raise InputError(f"mass_preserving: floor {floor} is not between 0 and 1")
    value, varies = among(episodes, episodes.by_question, scale=scale)
    mass = episodes.tokens if over == "tokens" else episodes.acts.astype(value.dtype)
    share = support(episodes)
    mean = episodes.over_episode(mass * share) / jnp.maximum(episodes.over_episode(mass), 1.0)
    weight = jnp.where(mean[:, None] > 0, share / jnp.where(mean > 0, mean, 1.0)[:, None], 1.0)
    return algebra.advantages(episodes, value[:, None] * (floor + (1.0 - floor) * weight), varies)


@estimator("redistribution", notes=("support", "fault"))
def topology(
    episodes: Episodes, *, orchestrator: int, attenuation: float, penalty: float, cap: int, scale: bool
) -> Advantages:
    """Plans and the runs that execute them, each relative to its own kind in the question.

    DAGRPO of DAGent, with the details of its released code. An episode's contexts are the plan, written by the role
    ``orchestrator``, and one run for each task of the graph, written by any other role. A run that the final answer
    depends on has the episode's reward, ``attenuation`` times it otherwise; where no run of the episode is depended on,
    all have it whole. The plan has the reward less ``penalty`` for each faulty turn, ``cap`` of them at most. Then
    ``A = (r - mean(r)) / std(r)`` among the plans, and apart from them among the runs; each context is one member.

    Notes: ``support`` (at the leaf of a run), above 0 where the answer depends on it; ``fault`` (at turns of the plan),
    above 0 where it broke a rule of the graph. On a path that both kinds wrote, each node has the value of its own.
    """
    by_role = episodes.along(jnp.asarray(episodes.nodes.role)) == orchestrator
    plans, runs = episodes.acts & by_role, episodes.acts & ~by_role
    reward = episodes.reward
    faults = jnp.minimum((plans & marked(episodes, "fault")).sum(axis=1), cap)
    carries = episodes.note("support")[episodes.leaf] > 0
    split = episodes.over_episode((runs & carries[:, None]).astype(reward.dtype)) > 0
    earned = jnp.where(carries | ~split, reward, attenuation * reward)
    size = steps.largest(episodes, reward) + abs(penalty) * cap
    value, varies = jnp.zeros(runs.shape), jnp.zeros_like(episodes.used)
    for kind, x in ((plans, reward - penalty * faults), (runs, earned)):
        member = episodes.scored & kind.any(axis=1)
        found, differs = steps.relative(x, size, member, episodes.by_question, scale=scale)
        value, varies = jnp.where(kind, found[:, None], value), varies | (differs & member)
    return algebra.advantages(episodes, value, varies)
