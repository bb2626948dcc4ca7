"""Drawing the next token: temperature, and the tokens that are not drawn at all.

Axes: S slots, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from rlsearch.errors import InputError


@dataclass(frozen=True)
class Draw:
    """How a slot draws: the distribution at a temperature, cut in this order and made to add up to one again.

    Raises:
      InputError: a number outside its range, or tokens cut where the most likely one is taken anyhow.
    """

    temperature: float = 1.0  # logits are divided by it; 0 takes the most likely token
    top_k: int = 0  # keeps so many of the likeliest; 0 keeps all
    top_p: float = 1.0  # then the likeliest that reach this share of what is left (Holtzman et al., 2020); 1 keeps all
    min_p: float = 0.0  # then those at least so many times as likely as the likeliest (Nguyen et al., 2024)

    def __post_init__(self):
        said = ", ".join(f"{name} {value}" for name, value in vars(self).items())
        said = f"config.sampling draws with {said}"
        if not 0 <= self.temperature < np.inf:
            raise InputError(f"{said}: the temperature must be 0 or more")
        if self.top_k < 0 or not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1:
            raise InputError(f"{said}: top_k must be 0 or more, top_p above 0 and at most 1, min_p from 0 to 1")
        if self.temperature == 0 and self.truncated:
            raise InputError(f"{said}: at temperature 0 the most likely token is taken; leave the others at 0, 1 and 0")

    @property
    def truncated(self) -> bool:
        """Whether some tokens are never drawn, so that log-probabilities are not those of the whole distribution."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


class Columns(NamedTuple):
    """``Draw`` of every slot."""

    temperature: Float[Array, "S"]
    top_k: Int[Array, "S"]
    top_p: Float[Array, "S"]
    min_p: Float[Array, "S"]


def columns(given: Sequence[Draw], rows: np.ndarray, size: int) -> Columns:
    """The draws at ``rows``, and in other rows one that cuts nothing."""
    all_ = [Draw()] * size
    for row, one in zip(rows, given, strict=True):
        all_[row] = one
    return Columns(
        np.array([one.temperature for one in all_], np.float32),
        np.array([one.top_k for one in all_], np.int32),
        np.array([one.top_p for one in all_], np.float32),
        np.array([one.min_p for one in all_], np.float32),
    )


class Drawn(NamedTuple):
    """Tokens, their log-probabilities under the distribution that they were drawn from, and its entropy; in nats."""

    token: Int[Array, "S"]
    logp: Float[Array, "S"]
    entropy: Float[Array, "S"]


def sample(key: Array, step: Int[Array, "S"], logits: Float[Array, "S V"], draw: Columns) -> Drawn:
    """Draws by the Gumbel-max trick, with ``fold_in(key[s], step[s])``; logits of -inf are never drawn."""
    greedy = draw.temperature == 0
    logp = jax.nn.log_softmax(logits / jnp.where(greedy, 1.0, draw.temperature)[:, None])
    cut = (draw.top_k > 0) | (draw.top_p < 1) | (draw.min_p > 0)
    logp = jax.lax.cond(cut.any(), lambda: jnp.where(cut[:, None], restricted(logp, draw), logp), lambda: logp)
    keys = jax.vmap(jax.random.fold_in)(key, step)
    noise = jax.vmap(lambda k: jax.random.gumbel(k, logits.shape[1:]))(keys)
    token = jnp.argmax(logp + jnp.where(greedy[:, None], 0.0, noise), axis=-1)
    entropy = -jnp.sum(jnp.where(logp > -jnp.inf, jnp.exp(logp) * logp, 0.0), axis=-1)
    return Drawn(token.astype(jnp.int32), jnp.take_along_axis(logp, token[:, None], axis=1)[:, 0], entropy)


def restricted(logp: Float[Array, "S V"], draw: Columns) -> Float[Array, "S V"]:
    """Log-probabilities after the cuts, -inf where a token is cut; tokens as likely as the last one kept are kept."""
    falling = -jnp.sort(-logp, axis=-1)
    place = jnp.arange(logp.shape[1])[None]
    kept = (place < draw.top_k[:, None]) | (draw.top_k == 0)[:, None]
    mass = jnp.where(kept, jnp.exp(falling), 0.0)
    before = jnp.cumsum(mass, axis=-1) - mass
    kept &= (before < draw.top_p[:, None] * mass.sum(axis=-1, keepdims=True)) | (draw.top_p == 1)[:, None]
    kept &= (falling >= falling[:, :1] + jnp.log(draw.min_p)[:, None]) | (place == 0)
    least = jnp.where(kept, falling, jnp.inf).min(axis=-1, keepdims=True)
    return jax.nn.log_softmax(jnp.where(logp >= least, logp, -jnp.inf))
