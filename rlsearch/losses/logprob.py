"""Log-probabilities of chosen tokens, and the entropy of the distributions that they were chosen from.

``score`` takes logits; ``score_hidden`` takes what the head is applied to and makes the logits of a few tokens of
every row at a time, forward and backward, so that memory does not grow with tokens times vocabulary.
Axes: B rows, S targets, E model width, V vocabulary, C targets of a chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlsearch.errors import InputError


def score(
    logits: Float[Array, "... V"], token_id: Int[Array, "..."], *, temperature: float
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Log-probability of each target and entropy of its distribution, at the temperature that it was sampled with."""
    logp = jax.nn.log_softmax(logits / temperature)
    chosen = jnp.take_along_axis(logp, token_id[..., None], axis=-1)[..., 0]
    return chosen, -jnp.sum(jnp.exp(logp) * logp, axis=-1)


def score_hidden(
    hidden: Float[Array, "... S E"],
    kernel: Float[Array, "E V"] | Float[Array, "V E"],
    token_id: Int[Array, "... S"],
    *,
    tied: bool,
    temperature: float,
    chunk: int,
    cap: float | None = None,
) -> tuple[Float[Array, "... S"], Float[Array, "... S"]]:
    """``score`` of the head applied to ``hidden``, in float32, for ``chunk`` targets of every row at a time.

    Rows stay together in a chunk, so that a mesh which shares them out works on all of them at once; memory is that
    of B x C x V logits. The backward pass makes each chunk's logits again instead of keeping them, and sums the
    kernel's gradient over chunks in float32, whatever the type of ``hidden``.

    On a mesh the kernel's gradient is summed over the devices that share the rows once a chunk, unless the compiler
    moves that behind the loop: there a chunk should be as large as memory allows.

    Args:
      hidden: final hidden states, any float type; the head is applied in this type and summed in float32.
      kernel: the head, [E, V], or where ``tied`` the embedding as it is, [V, E].
      token_id: the targets; padding may have any id of the vocabulary.
      tied: which of the two layouts ``kernel`` has.
      temperature: logits are divided by it.
      chunk: targets of a row at a time. At 0, or where a row has no more targets than this, all at once: the logits
        are kept for the backward pass, which is faster by one product and right for a small vocabulary.
      cap: of the model's logits, which are ``cap * tanh(logits / cap)`` before the temperature; None where uncapped.

    Returns:
      Log-probability and entropy of each target, in nats.

    Raises:
      InputError: ``chunk`` is negative.
    """
    if chunk < 0:
        raise InputError(f"logp_chunk is {chunk}; make it a number of targets, or 0 for all targets at once")
    head = _Head(tied, temperature, cap)
    targets = token_id.shape[-1]
    if chunk == 0 or chunk >= targets:
        return score(head.logits(hidden, kernel.astype(hidden.dtype)), token_id, temperature=temperature)
    chunks = -(-targets // chunk)
    size = -(-targets // chunks)  # as even as can be: padding is less than one target a chunk
    logp, entropy = _chunked(head, _split(hidden, 2, chunks, size), kernel, _split(token_id, 1, chunks, size))
    return _join(logp, targets), _join(entropy, targets)


@dataclass(frozen=True)
class _Head:
    """Products with the head's kernel in either layout, summed in float32."""

    tied: bool
    temperature: float
    cap: float | None

    def logits(self, hidden, kernel):
        """[.., E] -> [.., V], capped as the model does."""
        raw = self.product(hidden, kernel)
        return raw if self.cap is None else self.cap * jnp.tanh(raw / self.cap)

    def uncapped(self, slope, logits):
        """The slope by the logits as the slope by what was capped to them."""
        return slope if self.cap is None else slope * (1 - jnp.square(logits / self.cap))

    def product(self, hidden, kernel):
        """[.., E] -> [.., V]."""
        return self._einsum("...e,ve->...v" if self.tied else "...e,ev->...v", hidden, kernel)

    def product_back(self, gradient, kernel):
        """[.., V] -> [.., E]."""
        return self._einsum("...v,ve->...e" if self.tied else "...v,ev->...e", gradient, kernel)

    def outer(self, hidden, gradient):
        """[.., E] and [.., V] to the kernel's shape, summed over tokens."""
        hidden, gradient = hidden.reshape(-1, hidden.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        return self._einsum(
            "nv,ne->ve" if self.tied else "ne,nv->ev", *((gradient, hidden) if self.tied else (hidden, gradient))
        )

    def _einsum(self, spec, *operands):
        return jnp.einsum(spec, *operands, preferred_element_type=jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _chunked(head: _Head, hidden, kernel, token_id):
    return _chunked_forward(head, hidden, kernel, token_id)[0]


def _chunked_forward(head: _Head, hidden, kernel, token_id):
    """With m the largest logit, s = sum e^(l - m): logp = l_y - m - log s, entropy = log s - sum e^(l - m) (l - m) / s.

    Kept for the backward pass are m + log s and the entropy of each target, and the arguments.
    """
    cast = kernel.astype(hidden.dtype)

    def one(_, chunk):
        states, ids = chunk
        logits = head.logits(states, cast) / head.temperature
        top = logits.max(axis=-1)
        below = logits - top[..., None]
        weight = jnp.exp(below)
        total = weight.sum(axis=-1)
        spread = jnp.log(total)
        entropy = spread - (weight * below).sum(axis=-1) / total
        chosen = jnp.where(_is_target(logits, ids), below, 0.0).sum(axis=-1)
        return None, (chosen - spread, entropy, top + spread)

    _, (logp, entropy, normaliser) = jax.lax.scan(one, None, (hidden, token_id))
    return (logp, entropy), (hidden, kernel, token_id, normaliser, entropy)


def _chunked_backward(head: _Head, kept, gradients):
    """d logp / d l_v = [v = y] - p_v and d entropy / d l_v = -p_v (log p_v + entropy)."""
    hidden, kernel, token_id, normaliser, entropy = kept
    cast = kernel.astype(hidden.dtype)

    def one(total, chunk):
        states, ids, *floats = chunk
        norm, mean, of_logp, of_entropy = (leaf[..., None] for leaf in floats)
        logits = head.logits(states, cast)
        logp = logits / head.temperature - norm
        towards = jnp.where(_is_target(logp, ids), of_logp, 0.0)
        slope = towards - jnp.exp(logp) * (of_logp + of_entropy * (logp + mean))
        slope = head.uncapped(slope / head.temperature, logits).astype(hidden.dtype)
        return total + head.outer(states, slope), head.product_back(slope, cast).astype(hidden.dtype)

    zeros = jnp.zeros(kernel.shape, jnp.float32)
    total, of_hidden = jax.lax.scan(one, zeros, (hidden, token_id, normaliser, entropy, *gradients))
    return of_hidden, total.astype(kernel.dtype), None


_chunked.defvjp(_chunked_forward, _chunked_backward)


def _is_target(logits, token_id):
    """A comparison instead of a lookup: it stays where the vocabulary is shared out over devices."""
    return jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) == token_id[..., None]


def _split(x, axes: int, chunks: int, size: int):
    """[.., S, *] -> [chunks, .., size, *], zeros behind the last; ``axes`` counts from S to the end."""
    at = x.ndim - axes
    pad = [(0, 0)] * x.ndim
    pad[at] = (0, chunks * size - x.shape[at])
    x = jnp.pad(x, pad)
    return jnp.moveaxis(x.reshape(*x.shape[:at], chunks, size, *x.shape[at + 1 :]), at, 0)


def _join(x, targets: int):
    """[chunks, .., size] -> [.., S]."""
    x = jnp.moveaxis(x, 0, -2)
    return x.reshape(*x.shape[:-2], -1)[..., :targets]
