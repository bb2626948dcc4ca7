"""The slow twin of the policy step: one path at a time, nothing shared, the objective in its textbook form.

A path's log-probabilities come from a forward pass over that path alone; its advantages from the estimator's twin; the
loss and its gradient from ``tests.losses.plain``. All paths of a forest are rows of one array of a fixed shape, so the
model is compiled once for all forests, and each objective once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from statistics import pvariance

import jax
import jax.numpy as jnp
import numpy as np

from rlsearch.losses.policy import LossConfig
from rlsearch.models import decoder, value
from rlsearch.models.decoder import DecoderConfig, Params
from rlsearch.training.step import StepConfig
from rlsearch.tree.forest import NONE, Forest
from tests.credit import plain as credit
from tests.credit import twins  # noqa: F401  (registers the twins of estimators)
from tests.losses import plain
from tests.losses.plain import Paths
from tests.tree.random_forests import ancestors

PATHS, LONGEST = 96, 32  # paths of a forest, tokens of a path

# Twins of estimators that give each token its own advantage, by name: (paths, table, sampled [P, T], **options) ->
# (advantage [P, T], returns [P, T] or None, leaves that carry a signal).
TOKENWISE: dict[str, Callable] = {}


def tokenwise(function: Callable) -> Callable:
    """Registers a twin for tokens under the estimator's name."""
    TOKENWISE[function.__name__] = function
    return function


@tokenwise
def tempo(paths: Paths, table: credit.Table, sampled: np.ndarray, *, scale: bool, whole_turn: bool):
    """GRPO's advantage, and what a branch adds at the first token of its node, or at all."""
    group = credit.TWINS["grpo"](table, scale=scale)
    both = credit.TWINS["tempo"](table, scale=scale, whole_turn=True)
    advantage, leaf_of = np.zeros(sampled.shape, np.float32), dict(enumerate(table.leaves))
    for row, column in zip(*np.nonzero(sampled), strict=True):
        pair = (leaf_of[row], int(paths.node[row, column]))
        first = not sampled[row, column - 1] or paths.node[row, column - 1] != pair[1]
        advantage[row, column] = (both if first or whole_turn else group).advantage.get(pair, 0.0)
    return advantage, None, both.varies


def loss_and_gradient(
    params: Params, reference: Params | None, forest: Forest, config: StepConfig, *, old: np.ndarray | None = None,
    critic: Params | None = None,
) -> tuple[float, Params]:  # fmt: skip
    """The loss and the gradient by ``params``; where ``critic`` is given, by {"policy": ..., "critic": ...}.

    ``old`` are log-probabilities of the forest's tokens before the first update; without them they are the sampler's.
    """
    token_id, sampled, paths, leaves = lay_out(forest, forest.behavior_logp if old is None else old)
    score = functools.partial(_scores, model=config.model, token_id=token_id, temperature=config.temperature)
    logp, entropy = score(params)
    if config.loss.reference:
        paths = replace(paths, reference=np.where(sampled, score(reference)[0], 0))
    if critic is not None:
        whole = critic if config.critic_trunk == "own" else {**params, **critic}
        paths = replace(paths, old_value=np.where(sampled, _values(whole, config.model, token_id), 0))
    paths = credited(paths, forest, config, sampled, leaves)
    made = (logp, entropy, paths.old_value)
    loss, slopes = _objective(made, paths, config.loss)
    gradient = _pull(params, config.model, token_id, config.temperature, *slopes[:2])
    if critic is not None:
        of_value = _pull_value(whole, config.model, token_id, slopes[2])
        if config.critic_trunk == "shared":
            gradient = {name: jax.tree.map(jnp.add, leaf, of_value[name]) for name, leaf in gradient.items()}
        gradient = {"policy": gradient, "critic": {name: of_value[name] for name in critic}}
    return float(loss), jax.tree.map(np.asarray, gradient)


def lay_out(forest: Forest, old: np.ndarray) -> tuple[np.ndarray, np.ndarray, Paths, list[int]]:
    """Token ids and which are sampled [P, T]; what is known of them before any model; the leaf of each path."""
    leaves = np.flatnonzero(forest.nodes.episode != NONE).tolist()
    shape = (PATHS, LONGEST)
    names = ("token_id", "sampled", "node", "kind", "turn", "old", "behaviour")
    columns = {name: np.zeros(shape, bool if name == "sampled" else np.int32) for name in names[:5]}
    columns |= {name: np.zeros(shape, np.float32) for name in names[5:]}
    source = {
        "token_id": forest.token_id, "sampled": forest.sampled, "node": forest.token_node,
        "kind": forest.nodes.kind[forest.token_node], "turn": forest.nodes.turn[forest.token_node], "old": old,
        "behaviour": forest.behavior_logp,
    }  # fmt: skip
    for row, leaf in enumerate(leaves):
        tokens = np.flatnonzero(np.isin(forest.token_node, ancestors(forest.nodes.parent, leaf)))
        for name, column in columns.items():
            column[row, : len(tokens)] = source[name][tokens]
    sampled = columns["sampled"]
    zero, lone = np.zeros(shape, np.float32), np.zeros(PATHS, np.float32)
    number = np.full(PATHS, NONE, np.int32)
    number[: len(leaves)] = forest.nodes.episode[leaves]
    question = np.zeros(PATHS, np.int32)
    question[: len(leaves)] = forest.nodes.question[leaves]
    notes = {name: np.pad(column[leaves], (0, PATHS - len(leaves))) for name, column in forest.nodes.notes.items()}
    paths = Paths(
        use=sampled, node=columns["node"], kind=columns["kind"], turn=columns["turn"], logp=zero, entropy=zero,
        old=np.where(sampled, columns["old"], 0), behaviour=np.where(sampled, columns["behaviour"], 0), reference=zero,
        value=zero, old_value=zero, returns=zero, advantage=zero, weight=zero, reward=lone, outcome=lone, spread=lone,
        kept=np.zeros(PATHS, bool), episode=number, question=question, notes=notes,
    )  # fmt: skip
    return columns["token_id"], sampled, paths, leaves


def credited(paths: Paths, forest: Forest, config: StepConfig, sampled: np.ndarray, leaves: list[int]) -> Paths:
    """With advantages, weights and rewards of every token and path, and without tokens that take no part."""
    table = credit.Table(forest.nodes, config.weights)
    outcome = dict(table.totals)
    if config.loss.kl is not None and config.loss.kl.place == "reward":
        taken = np.asarray(plain.penalty(paths, config.loss, of_old=True), np.float64).sum(axis=1)
        of_episode = {e: taken[paths.episode == e].sum() for e in set(paths.episode.tolist())}
        table.totals = {leaf: total - of_episode[table.episode[leaf]] for leaf, total in table.totals.items()}
    estimator = config.credit.estimator
    advantage, returns = np.zeros(sampled.shape, np.float32), np.zeros(sampled.shape, np.float32)
    if estimator.name in TOKENWISE:
        advantage, returns, varies = TOKENWISE[estimator.name](paths, table, sampled, **plain.options(estimator))
        masked = set()
    else:
        answer = credit.TWINS[estimator.name](table, **plain.options(estimator))
        varies, masked = answer.varies, answer.masked
    kept = set(table.totals) & varies if config.credit.drop_equal else set(table.totals)
    use = np.zeros(sampled.shape, bool)
    for row, leaf in enumerate(leaves):
        for column in np.flatnonzero(sampled[row]):
            pair = (leaf, int(paths.node[row, column]))
            use[row, column] = leaf in kept and pair not in masked
            if estimator.name not in TOKENWISE:
                advantage[row, column] = answer.advantage.get(pair, 0.0)
    weight = plain.token_weights(
        use, paths.episode, paths.node, config.loss.reduction.name, **plain.options(config.loss.reduction)
    )
    by_question = credit.grouped(table.votes, lambda leaf: table.question[leaf])
    variance = {q: pvariance([table.totals[leaf] for leaf in members]) for q, members in by_question.items()}

    def column(of: Callable[[int], float], kind=np.float32):
        return np.array([of(leaf) for leaf in leaves] + [0] * (PATHS - len(leaves)), kind)

    names = ("old", "behaviour", "reference", "old_value")
    return replace(
        paths, use=use, advantage=np.where(use, advantage, 0), weight=weight,
        returns=paths.returns if returns is None else np.where(use, returns, 0),
        reward=column(lambda leaf: table.totals.get(leaf, 0.0)),
        outcome=column(lambda leaf: outcome.get(leaf, np.nan)),
        spread=column(lambda leaf: variance.get(table.question[leaf], 0.0)),
        kept=column(lambda leaf: leaf in kept, bool),
        **{name: np.where(use, getattr(paths, name), 0) for name in names},
    )  # fmt: skip


@functools.partial(jax.jit, static_argnames="config")
@jax.value_and_grad
def _objective(made, paths: Paths, config: LossConfig):
    logp, entropy, values = (jnp.where(paths.use, x, 0.0) for x in made)
    return plain.objective(replace(paths, logp=logp, entropy=entropy, value=values), config)


@functools.partial(jax.jit, static_argnames="model")
def _scores(params: Params, model: DecoderConfig, token_id, temperature):
    """Log-probability of each token of each path, and entropy of what it was chosen from; 0 at the first."""
    hidden = decoder.apply(params, model, token_id=token_id, **_alone(token_id), remat=False, attention="dense")
    logp = jax.nn.log_softmax(decoder.logits(params, model, hidden)[:, :-1] / temperature)
    entropy = -(jnp.exp(logp) * logp).sum(axis=-1)
    chosen = jnp.take_along_axis(logp, token_id[:, 1:, None], axis=2)[:, :, 0]
    return tuple(jnp.pad(x, ((0, 0), (1, 0))) for x in (chosen, entropy))


@functools.partial(jax.jit, static_argnames="model")
def _pull(params: Params, model: DecoderConfig, token_id, temperature, of_logp, of_entropy) -> Params:
    """The gradient by the parameters, from that by log-probabilities and entropies."""

    def weighed(params):
        logp, entropy = _scores(params, model, token_id, temperature)
        return (of_logp * logp + of_entropy * entropy).sum()

    return jax.grad(weighed)(params)


@functools.partial(jax.jit, static_argnames="model")
def _values(params: Params, model: DecoderConfig, token_id):
    """What the critic says before each token of each path; 0 at the first."""
    found = value.head(
        params, decoder.apply(params, model, token_id=token_id, **_alone(token_id), remat=False, attention="dense")
    )
    return jnp.pad(found[:, :-1], ((0, 0), (1, 0)))


@functools.partial(jax.jit, static_argnames="model")
def _pull_value(params: Params, model: DecoderConfig, token_id, slope) -> Params:
    return jax.grad(lambda params: (slope * _values(params, model, token_id)).sum())(params)


def _alone(token_id) -> dict:
    """Positions and ends of plain causal sequences."""
    index = jnp.broadcast_to(jnp.arange(LONGEST)[None], token_id.shape)
    return {"position": index, "token_end": jnp.full_like(index, LONGEST)}
