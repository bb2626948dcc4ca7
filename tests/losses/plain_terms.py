"""The terms of the loss on paths that share nothing, each as its paper writes it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.tree.forest import Kind
from tests.losses import plain
from tests.losses.plain import Paths, stop, term


def same_episode(paths: Paths) -> Float[Array, "P P"]:
    return (paths.episode[:, None] == paths.episode[None, :]).astype(jnp.float32)


def of_episode(x: Float[Array, "P T"], paths: Paths) -> Float[Array, "P"]:
    """Sum over all tokens that take part of all contexts of the path's episode."""
    return (same_episode(paths) * jnp.where(paths.use, x, 0.0).sum(axis=1)[None, :]).sum(axis=1)


def first(paths: Paths) -> Bool[Array, "P"]:
    """Whether no earlier path is of the same episode."""
    index = jnp.arange(len(paths.episode))
    earlier = (same_episode(paths) > 0) & (index[None, :] < index[:, None])
    return (paths.episode >= 0) & ~earlier.any(axis=1)


def said(x: Float[Array, "P"], paths: Paths) -> Float[Array, "P"]:
    """What the first path of each path's episode has."""
    return (same_episode(paths) * (first(paths) * x)[None, :]).sum(axis=1)


def voters(paths: Paths) -> Bool[Array, "P"]:
    return first(paths) & ~jnp.isnan(paths.outcome)


def members(paths: Paths) -> Bool[Array, "P"]:
    """The first paths of episodes with tokens that take part."""
    return first(paths) & (of_episode(jnp.ones(paths.use.shape), paths) > 0)


def peers(use: Bool[Array, "P"], paths: Paths) -> Float[Array, "P P"]:
    """1 where the path of the column is in use and of the row's question."""
    return ((paths.question[:, None] == paths.question[None, :]) & use[None, :]).astype(jnp.float32)


def mean_over(x: Float[Array, "P T"], chosen: Bool[Array, "P"], paths: Paths) -> Float[Array, ""]:
    weight = jnp.where(paths.use & chosen[:, None], paths.weight, 0.0)
    return jnp.where(weight.sum() > 0, (weight * x).sum() / jnp.where(weight.sum() > 0, weight.sum(), 1.0), 0.0)


def log_ratio(paths: Paths) -> Float[Array, "P T"]:
    return paths.logp - paths.old


@term
def llds(paths: Paths, *, coefficient, gate, preserve, answers) -> Float[Array, ""]:
    change = jnp.where(paths.use, log_ratio(paths), 0.0)
    index = {"turn": paths.turn, "node": paths.node}
    if gate == "sequence":
        gathered = jnp.broadcast_to(of_episode(change, paths)[:, None], change.shape)
    elif gate == "token":
        gathered = change
    else:
        gathered = plain.mean_over(change, index[gate], paths)
    active = paths.use & (gathered < 0) & ((preserve == "all") | (paths.advantage >= 0))
    penalty = jnp.where(paths.kind == Kind.ANSWER, answers, 1.0) * jnp.where(change < 0, -change, 0.0)
    return coefficient * jnp.where(active, paths.weight * penalty, 0.0).sum()


@term
def sft(paths: Paths, *, coefficient, note, above) -> Float[Array, ""]:
    value = paths.outcome if note is None else said(paths.notes[note], paths)
    return -coefficient * mean_over(paths.logp, value > above, paths)


@term
def dpo(paths: Paths, *, coefficient, beta, pairs) -> Float[Array, ""]:
    outcome, use = jnp.where(jnp.isnan(paths.outcome), 0.0, paths.outcome), members(paths)
    d = of_episode(paths.logp - paths.reference, paths)
    alike = peers(use, paths) * use[:, None]
    better = alike * (outcome[:, None] > outcome[None, :])
    if pairs == "extremes":
        # Nothing is better than the row, and nothing worse than the column.
        best, worst = better.sum(axis=0) == 0, better.sum(axis=1) == 0
        better = better * best[:, None] * worst[None, :]
    of_question = (peers(use, paths) * better.sum(axis=1)[None, :]).sum(axis=1)
    loss = -jnp.log(jax.nn.sigmoid(beta * (d[:, None] - d[None, :])))
    mean = jnp.where(better > 0, better * loss / jnp.maximum(of_question, 1.0)[:, None], 0.0).sum()
    questions = jnp.where(better > 0, better / jnp.maximum(of_question, 1.0)[:, None], 0.0).sum()
    return coefficient * mean / jnp.maximum(questions, 1.0)


@term
def pacs(paths: Paths, *, coefficient, beta, above, balance) -> Float[Array, ""]:
    use = members(paths)
    group = peers(use, paths)
    n = group.sum(axis=1)
    use = use & (n > 1)
    r = beta * of_episode(log_ratio(paths), paths)
    others = group * (1.0 - jnp.eye(len(n)))
    psi = r - (others * r[None, :]).sum(axis=1) / jnp.maximum(n - 1, 1)
    label = (paths.outcome > above).astype(jnp.float32)
    entropy = -label * jax.nn.log_sigmoid(psi) - (1 - label) * jax.nn.log_sigmoid(-psi)
    alike = (group * (label[:, None] == label[None, :])).sum(axis=1)
    if balance:
        entropy *= jnp.where(alike == n, 1.0, n / (2 * jnp.maximum(alike, 1)))
    return coefficient * jnp.where(use, entropy, 0.0).sum() / jnp.maximum(use.sum(), 1)


@term
def oreal(paths: Paths, *, coefficient, above, negative, multiply) -> Float[Array, ""]:
    scored, right = ~jnp.isnan(paths.outcome), paths.outcome > above
    group = peers(voters(paths), paths)
    n, correct = group.sum(axis=1), (group * right[None, :]).sum(axis=1)
    # For binary rewards 1 - (correct - 1) / (n - 1) and 0 - correct / (n - 1).
    of_right = jnp.where(n > 1, (n - correct) / jnp.maximum(n - 1, 1), 0.0)
    of_wrong = jnp.where(n > 1, -correct / jnp.maximum(n - 1, 1), 0.0)
    cloning = (of_right if multiply else jnp.ones_like(n))[:, None] * paths.logp
    loss = -mean_over(cloning, scored & right, paths)
    return coefficient * (loss - negative * mean_over(of_wrong[:, None] * log_ratio(paths), scored & ~right, paths))


def good_advantage(paths: Paths, baseline: str) -> Float[Array, "P"]:
    """Advantages of episodes that count; 0 for those that are dropped."""
    outcome = jnp.where(jnp.isnan(paths.outcome), 0.0, paths.outcome)
    group = peers(voters(paths), paths)
    value = (group * outcome[None, :]).sum(axis=1) / jnp.maximum(group.sum(axis=1), 1)
    advantage = outcome - (said(paths.notes["baseline"], paths) if baseline == "note" else value)
    return jnp.where(members(paths) & (advantage > 1e-5), advantage, 0.0)


@term
def a_lol(paths: Paths, *, coefficient, ratio, clip, baseline) -> Float[Array, ""]:
    change = stop(paths.logp - paths.reference)
    if ratio == "sequence":
        change = jnp.broadcast_to(of_episode(change, paths)[:, None], change.shape)
    weight = jnp.minimum(jnp.maximum(jnp.exp(change), 1 - clip), 1 + clip)
    advantage = good_advantage(paths, baseline)
    of_each = advantage * of_episode(weight * paths.logp, paths)
    return -coefficient * of_each.sum() / jnp.maximum((advantage > 0).sum(), 1)


@term
def a_lol_free(paths: Paths, *, coefficient, baseline) -> Float[Array, ""]:
    advantage = good_advantage(paths, baseline)
    return -coefficient * (advantage * of_episode(paths.logp, paths)).sum() / jnp.maximum((advantage > 0).sum(), 1)


@term
def rl_plus(paths: Paths, *, coefficient, low, high, behaviour, power) -> Float[Array, ""]:
    now, before = jnp.exp(paths.logp), jnp.exp(paths.old)
    source = jnp.exp(paths.behaviour) if behaviour == "recorded" else (before + 1) / 2
    given = now / ((before + source) / 2) * paths.advantage * (1 - stop(now)) ** power
    own = plain.ppo(jnp.where(paths.use, log_ratio(paths), 0.0), paths.advantage, None, low=low, high=high)
    external = said(paths.notes["external"], paths) > 0
    return -coefficient * jnp.where(paths.use, paths.weight * jnp.where(external[:, None], given, own), 0.0).sum()
