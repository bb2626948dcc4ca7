"""The slow twin of the engine: the whole context through the decoder for every token."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from rlsearch.models import decoder
from rlsearch.sampling.draw import Draw

LENGTH = 96  # contexts are padded to this, so that one compilation serves all


@partial(jax.jit, static_argnums=1)
def _next_logits(params, cfg, tokens, last):
    position = jnp.arange(LENGTH)[None]
    hidden = decoder.apply(
        params,
        cfg,
        token_id=tokens,
        position=position,
        token_end=jnp.full((1, LENGTH), LENGTH),
        remat=False,
        attention="dense",
    )
    return decoder.logits(params, cfg, hidden[0, last])


def next_logps(params, cfg, context, *, temperature: float) -> np.ndarray:
    """Log-probabilities of the token after ``context``, f32[V]; those at temperature 1 where it is 0."""
    tokens = np.zeros((1, LENGTH), np.int32)
    tokens[0, : len(context)] = context
    logits = _next_logits(params, cfg, tokens, len(context) - 1)
    return np.asarray(jax.nn.log_softmax(logits / (temperature or 1.0)))


def cut(logp, draw: Draw) -> np.ndarray:
    """Log-probabilities after the cuts, one token after the other; -inf where a token is never drawn."""
    order = sorted(range(len(logp)), key=lambda token: -logp[token])
    kept = order[: draw.top_k or len(order)]
    total, reached, nucleus = sum(np.exp(logp[token]) for token in kept), 0.0, []
    for token in kept:
        if draw.top_p < 1 and reached >= draw.top_p * total:
            break
        nucleus.append(token)
        reached += np.exp(logp[token])
    kept = [token for token in nucleus if np.exp(logp[token]) >= draw.min_p * np.exp(logp[order[0]])]
    found = np.full(len(logp), -np.inf)
    found[kept] = logp[kept] - np.log(sum(np.exp(logp[token]) for token in kept))
    return found


def turn(params, cfg, context, *, tokenizer, stops, budget: int, key, draw: Draw):
    """What the policy writes after ``context``: tokens, log-probabilities, and whether it stopped by itself."""
    tokens, logps = [], []
    for n in range(budget):
        logp = cut(next_logps(params, cfg, [*context, *tokens], temperature=draw.temperature), draw)
        noise = jax.random.gumbel(jax.random.fold_in(key, n), logp.shape) if draw.temperature else 0.0
        tokens.append(int(np.argmax(logp + noise)))
        logps.append(float(logp[tokens[-1]]))
        if tokens[-1] in tokenizer.eos_ids or any(stop in tokenizer.decode(tokens) for stop in stops):
            return tokens, logps, True
    return tokens, logps, False
