"""The slow twin of the policy step: one path at a time, nothing shared, the objective in its textbook form."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rlsearch.models import decoder
from rlsearch.models.decoder import DecoderConfig, Params
from rlsearch.training.step import StepConfig
from rlsearch.tree.forest import Forest
from tests.credit import plain
from tests.tree.random_forests import ancestors

LONGEST = 32  # tokens of a path


def loss_and_gradient(
    params: Params, reference: Params | None, forest: Forest, config: StepConfig
) -> tuple[float, Params]:
    nodes, credit = forest.nodes, config.credit
    values = plain.totals(nodes, config.weights)
    advantage, varying = plain.advantages(nodes, values, credit.estimator.name, scale=credit.estimator["scale"])
    weights = plain.leaf_weights(nodes, varying if credit.drop_equal else set(values), config.loss.reduction.name)
    loss, gradient = 0.0, jax.tree.map(np.zeros_like, params)
    for leaf, weight in weights.items():
        token_id, sampled, behavior = _path(forest, leaf)
        numbers = {
            "advantage": advantage[leaf], "weight": weight, "temperature": config.temperature,
            "low": config.loss.clip["low"], "high": config.loss.clip["high"], "entropy": config.loss.entropy,
            "kl": config.loss.kl.coefficient if reference is not None else 0.0,
        }  # fmt: skip
        one, part = _path_loss(params, reference or params, config.model, token_id, sampled, behavior, numbers)
        loss, gradient = loss + float(one), jax.tree.map(np.add, gradient, part)
    return loss, gradient


def _path(forest: Forest, leaf: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids, which were sampled and their log-probabilities on one path, padded at the end."""
    tokens = np.flatnonzero(np.isin(forest.token_node, ancestors(forest.nodes.parent, leaf)))
    padding = (0, LONGEST - len(tokens))
    return tuple(np.pad(column[tokens], padding) for column in (forest.token_id, forest.sampled, forest.behavior_logp))


@functools.partial(jax.jit, static_argnames="model")
@functools.partial(jax.value_and_grad, argnums=0)
def _path_loss(params, reference, model: DecoderConfig, token_id, sampled, behavior, numbers):
    logp = _log_softmax(params, model, token_id, numbers["temperature"])
    other = _log_softmax(reference, model, token_id, numbers["temperature"])
    entropy = -(jnp.exp(logp) * logp).sum(axis=-1)
    chosen, other = (jnp.take_along_axis(x, token_id[1:, None], axis=1)[:, 0] for x in (logp, other))
    ratio = jnp.exp(chosen - behavior[1:])
    inside = jnp.clip(ratio, 1 - numbers["low"], 1 + numbers["high"])
    surrogate = jnp.minimum(ratio * numbers["advantage"], inside * numbers["advantage"])
    k3 = jnp.exp(other - chosen) - 1 - (other - chosen)
    token_loss = -surrogate + numbers["kl"] * k3 - numbers["entropy"] * entropy
    return (numbers["weight"] * jnp.where(sampled[1:], token_loss, 0.0)).sum()


def _log_softmax(params: Params, model: DecoderConfig, token_id, temperature):
    """Log-probabilities [T - 1, V] of what follows each token of one plain causal sequence."""
    index = jnp.arange(LONGEST)[None]
    hidden = decoder.apply(
        params,
        model,
        token_id=token_id[None],
        position=index,
        token_end=jnp.full_like(index, LONGEST),
        remat=False,
        attention="dense",
    )
    return jax.nn.log_softmax(decoder.logits(params, model, hidden)[0, :-1] / temperature)
