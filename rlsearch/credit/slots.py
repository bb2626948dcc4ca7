"""The sampled tokens of a batch where they lie in its rows, for credit that differs within a node.

Axes: M blocks, R rows, S slots of a row. A node's sampled tokens stand in one row, next to each other and in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Slots:
    """Sampled tokens, and what is known of each before any update on the batch.

    Attributes:
      node: index of each token's node.
      use: slots that hold a token.
      value: what the critic says of the state before the token, or None.
      penalty: what the KL to the reference takes from the reward at this token, or None.
    """

    node: Int[Array, "M R S"]
    use: Bool[Array, "M R S"]
    value: Float[Array, "M R S"] | None
    penalty: Float[Array, "M R S"] | None


def node_sum(x: Float[Array, "M R S ..."], slots: Slots, nodes: int) -> Float[Array, "N ..."]:
    """Sum of x over the tokens of each of ``nodes`` nodes."""
    behind = x.shape[slots.use.ndim :]
    x = jnp.where(slots.use.reshape(slots.use.shape + (1,) * len(behind)), x, 0.0)
    return jax.ops.segment_sum(x.reshape(-1, *behind), slots.node.reshape(-1), nodes)


def to_node_end(x: Float[Array, "M R S"], slots: Slots, discount: float) -> Float[Array, "M R S"]:
    """``y_t = x_t + discount y_{t+1}`` within each node, from its last sampled token backwards; 0 in unused slots."""
    x = jnp.where(slots.use, x, 0.0)
    nxt = jnp.concatenate([slots.node[..., 1:], jnp.full_like(slots.node[..., :1], -1)], axis=-1)
    goes_on = slots.use & (nxt == slots.node) & jnp.roll(slots.use, -1, axis=-1)

    def one(later, here):
        reward, on = here
        now = reward + jnp.where(on, discount * later, 0.0)
        return now, now

    steps = (jnp.moveaxis(x, -1, 0), jnp.moveaxis(goes_on, -1, 0))
    _, found = jax.lax.scan(one, jnp.zeros(x.shape[:-1], x.dtype), steps, reverse=True)
    return jnp.moveaxis(found, 0, -1)


def place(slots: Slots, nodes: int) -> tuple[Int[Array, "M R S"], Int[Array, "M R S"]]:
    """How many sampled tokens of the same node stand before each token, and how many behind it; 0 in unused slots."""
    slot = jnp.broadcast_to(jnp.arange(slots.node.shape[-1]), slots.node.shape)
    both = jnp.where(slots.use[..., None], jnp.stack([slot, -slot], axis=-1), slot.shape[-1])
    ends = jax.ops.segment_min(both.reshape(-1, 2), slots.node.reshape(-1), nodes)[slots.node]
    return tuple(jnp.where(slots.use, x, 0) for x in (slot - ends[..., 0], -ends[..., 1] - slot))
