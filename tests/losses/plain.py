"""The objective as textbooks write it, on paths that share nothing: the slow twin of ``losses``.

Every path is a row of its own and holds its own copy of every token, with its own advantage and weight. What is not
counted is 0 everywhere. Axes: P paths, T tokens of a path, padded at the end.

``TERMS`` takes the plain value of further terms, under the term's own name: ``(paths, **options) -> scalar``, weights
included, to be minimised. Gradients by ``logp``, ``entropy`` and ``value`` are found by differentiation, so what a
paper holds constant has to stand in ``stop``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from rlsearch.losses.policy import LossConfig

stop = jax.lax.stop_gradient


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Paths:
    """Every path of a forest on its own.

    Attributes:
      use: sampled tokens that take part on this path; all columns below are 0 elsewhere.
      node: index of each token's node in the forest.
      kind: of that node.
      turn: number of the turn that each token belongs to.
      logp, entropy: under the policy being trained.
      old, behaviour, reference: log-probabilities before the first update, of the sampler, of the reference.
      value, old_value, returns: of a critic; zeros where there is none.
      advantage: of this path's episode at each token.
      weight: of each token on this path.
      reward: of each path's episode (less the KL where it has its place in the reward), 0 where it was not scored.
      outcome: of each path's episode, before any KL; NaN where it was not scored.
      spread: population variance of the rewards of the path's question.
      kept: episodes that take part.
      episode: paths with the same number belong to one episode; -1 in padding.
      question: index of each path's question.
      notes: columns at the leaf of each path.
    """

    use: Bool[Array, "P T"]
    node: Int[Array, "P T"]
    kind: Int[Array, "P T"]
    turn: Int[Array, "P T"]
    logp: Float[Array, "P T"]
    entropy: Float[Array, "P T"]
    old: Float[Array, "P T"]
    behaviour: Float[Array, "P T"]
    reference: Float[Array, "P T"]
    value: Float[Array, "P T"]
    old_value: Float[Array, "P T"]
    returns: Float[Array, "P T"]
    advantage: Float[Array, "P T"]
    weight: Float[Array, "P T"]
    reward: Float[Array, "P"]
    outcome: Float[Array, "P"]
    spread: Float[Array, "P"]
    kept: Bool[Array, "P"]
    episode: Int[Array, "P"]
    question: Int[Array, "P"]
    notes: dict[str, Float[Array, "P"]]


def objective(paths: Paths, config: LossConfig) -> Float[Array, ""]:
    """The loss: a sum over every token of every path."""
    token = -config.entropy * paths.entropy
    if config.clip is not None:
        log_ratio = jnp.where(paths.use, LEVELS[config.level](paths), 0.0)
        surrogate = CLIPS[config.clip.name](log_ratio, paths.advantage, paths.spread[:, None], **options(config.clip))
        if config.mismatch is not None:
            ratio = jnp.exp(stop(paths.old - paths.behaviour))
            surrogate *= CORRECTIONS[config.mismatch.name](ratio, **options(config.mismatch))
        token -= surrogate
    if config.kl is not None and config.kl.place == "loss":
        token += penalty(paths, config)
    loss = jnp.where(paths.use, paths.weight * token, 0.0).sum()
    return loss + sum((TERMS[term.name](paths, **options(term)) for term in config.terms), start=0.0)


def options(call) -> dict:
    return dict(call.options)


# Levels: the log-ratio of each token of each path.


def mean_over(x: Float[Array, "P T"], group: Array, paths: Paths) -> Float[Array, "P T"]:
    """Each token's x averaged over the tokens of its own path that have the same number in ``group``."""
    same = (group[:, :, None] == group[:, None, :]) & paths.use[:, None, :]
    return (same * x[:, None, :]).sum(axis=2) / jnp.maximum(same.sum(axis=2), 1)


def mean_of_episode(x: Float[Array, "P T"], paths: Paths) -> Float[Array, "P T"]:
    """The mean over all tokens of all paths of the path's episode."""
    same = (paths.episode[:, None] == paths.episode[None, :]).astype(jnp.float32)
    total = (same * jnp.where(paths.use, x, 0.0).sum(axis=1)[None, :]).sum(axis=1)
    count = (same * paths.use.sum(axis=1).astype(jnp.float32)[None, :]).sum(axis=1)
    return jnp.broadcast_to((total / jnp.maximum(count, 1.0))[:, None], x.shape)


def difference(paths: Paths) -> Float[Array, "P T"]:
    return jnp.where(paths.use, paths.logp - paths.old, 0.0)


def sequence_token(paths: Paths) -> Float[Array, "P T"]:
    """log of: sg(s) x pi / sg(pi)."""
    return stop(mean_of_episode(difference(paths), paths)) + paths.logp - stop(paths.logp)


LEVELS = {
    "token": difference,
    "node": lambda paths: mean_over(difference(paths), paths.node, paths),
    "turn": lambda paths: mean_over(difference(paths), paths.turn, paths),
    "sequence": lambda paths: mean_of_episode(difference(paths), paths),
    "sequence_token": sequence_token,
}


# Clips: what is maximised, from log-ratio x, advantage a and variance v. Written by cases of the advantage's sign.


def by_sign(a, good, bad):
    return jnp.where(a > 0, good, bad)


def ppo(x, a, v, *, low, high):
    r = jnp.exp(x)
    return by_sign(a, a * jnp.where(r > 1 + high, 1 + high, r), a * jnp.where(r < 1 - low, 1 - low, r))


def dual(x, a, v, *, low, high, bound):
    return jnp.where(a < 0, jnp.maximum(ppo(x, a, v, low=low, high=high), bound * a), ppo(x, a, v, low=low, high=high))


def cispo(x, a, v, *, low, high):
    r = stop(jnp.exp(x))
    return jnp.where(r > 1 + high, 1 + high, jnp.where(r < 1 - low, 1 - low, r)) * a * x


def aspo(x, a, v, *, low, high, bound):
    """With the weight w = pi_old / pi where a > 0 and pi / pi_old elsewhere: sg(min(w, bound)) a, of gradient
    min(w, bound) a grad log pi; where PPO's clip is reached, none.
    """
    r = stop(jnp.exp(x))
    still = jnp.where(a > 0, r > 1 + high, r < 1 - low)
    inside = jnp.where(still, jnp.where(a > 0, 1 + high, 1 - low), r)
    weight = jnp.minimum(jnp.where(a > 0, 1 / inside, inside), bound)
    return weight * a * (1 + jnp.where(still, 0.0, x - stop(x)))


def elastic(x, a, v, *, low, high, magnitude, variance):
    r, wide = jnp.exp(x), (1 + magnitude * jnp.abs(a)) * (1 + variance * v)
    top, bottom = 1 + high * wide, jnp.maximum(1 - low * wide, 0)
    return by_sign(a, a * jnp.where(r > top, top, r), a * jnp.where(r < bottom, bottom, r))


CLIPS = {
    "ppo": ppo,
    "none": lambda x, a, v: jnp.exp(x) * a,
    "dual": dual,
    "cispo": cispo,
    "aspo": aspo,
    "elastic": elastic,
    "reinforce": lambda x, a, v: x * a,
}


CORRECTIONS = {
    "truncated": lambda ratio, cap: jnp.where(ratio > cap, cap, ratio),
    "masked": lambda ratio, low, high: jnp.where((ratio < low) | (ratio > high), 0.0, ratio),
}


# KL to the reference, where the loss has it.

ESTIMATORS = {
    "k1": lambda log_p, log_q: log_p - log_q,
    "k2": lambda log_p, log_q: (log_p - log_q) ** 2 / 2,
    "k3": lambda log_p, log_q: jnp.exp(log_q - log_p) - 1 - (log_q - log_p),
}


def critical(log_p, log_q, *, power, vocabulary):
    return jnp.maximum(1 + log_q / np.log(vocabulary), 0) ** power


KL_WEIGHTS = {"uniform": lambda log_p, log_q: jnp.ones_like(log_q), "critical": critical}


def penalty(paths: Paths, config: LossConfig, *, of_old: bool = False) -> Float[Array, "P T"]:
    """coefficient x weight x estimate of each token, of the policy being trained or of the one before the update."""
    logp, kl = paths.old if of_old else paths.logp, config.kl
    weight = stop(KL_WEIGHTS[kl.weights.name](logp, paths.reference, **options(kl.weights)))
    found = kl.coefficient * weight * ESTIMATORS[kl.estimator](logp, paths.reference)
    return jnp.where(paths.use, found, 0.0)


# Reductions: the weight of every token of every path, from which tokens take part, the paths' episodes and the nodes.


def token_weights(use: np.ndarray, episode: np.ndarray, node: np.ndarray, reduction: str, **options) -> np.ndarray:
    """[P, T]; an episode without tokens is in no denominator."""
    episodes = {int(e) for e, row in zip(episode, use, strict=True) if row.any()}
    found = np.zeros(use.shape, np.float32)
    for row in np.flatnonzero(use.any(axis=1)):
        mine = use & (episode == episode[row])[:, None]
        if reduction == "token":
            found[row] = 1 / use.sum()
        elif reduction == "sequence":
            found[row] = 1 / (len(episodes) * mine.sum())
        elif reduction == "constant":
            found[row] = 1 / (len(episodes) * options["length"])
        elif reduction == "node":
            nodes = sum(len(set(node[other][mine[other]].tolist())) for other in np.flatnonzero(mine.any(axis=1)))
            for index in set(node[row][use[row]].tolist()):
                here = use[row] & (node[row] == index)
                found[row, here] = 1 / (len(episodes) * nodes * here.sum())
        else:
            raise KeyError(reduction)
    return np.where(use, found, 0)


TERMS: dict[str, Callable[..., Float[Array, ""]]] = {}


def term(function: Callable[..., Float[Array, ""]]) -> Callable[..., Float[Array, ""]]:
    """Registers the plain value of the term of the same name."""
    TERMS[function.__name__] = function
    return function
