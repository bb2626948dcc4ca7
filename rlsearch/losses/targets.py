"""What an objective is computed on: sampled tokens, and the episodes that go through each.

Axes: ... any shape of targets (a block's [R, S] or the batch's [M, R, S]), K paths through a token's node, N nodes,
L paths, D depths.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlsearch.credit.algebra import Credit, Episodes, Track
from rlsearch.tree import paths


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Targets:
    """Sampled tokens and what models say of them. What stands where ``use`` is False reaches nothing.

    Attributes:
      node: index of each token's node.
      use: tokens that count.
      logp: log-probability under the policy being trained.
      entropy: of the distribution that it was chosen from, in nats.
      old_logp: log-probability under the policy before the first update on this batch; ratios are relative to it.
      behavior_logp: log-probability that the sampler recorded.
      reference_logp: log-probability under the reference policy, or None.
      value: what the critic being trained says of the state before the token, or None.
      old_value: what it said before the first update on this batch, or None.
      advantage: of each episode through the token.
      returns: what the critic should say of the state before it, by each episode, or None.
      weight: of each episode through the token; 0 where it does not count.
      spread: population variance of the rewards in the token's question.
    """

    node: Int[Array, "..."]
    use: Bool[Array, "..."]
    logp: Float[Array, "..."]
    entropy: Float[Array, "..."]
    old_logp: Float[Array, "..."]
    behavior_logp: Float[Array, "..."]
    reference_logp: Float[Array, "..."] | None
    value: Float[Array, "..."] | None
    old_value: Float[Array, "..."] | None
    advantage: Float[Array, "... K"]
    returns: Float[Array, "... K"] | None
    weight: Float[Array, "... K"]
    spread: Float[Array, "..."]

    @property
    def share(self) -> Float[Array, "..."]:
        """What each token weighs over all its episodes."""
        return self.weight.sum(axis=-1)


@dataclass(frozen=True)
class Batch:
    """What is known of the whole batch, whichever part of its targets is at hand."""

    episodes: Episodes
    credit: Credit

    def node_sum(self, x: Float[Array, "..."], targets: Targets) -> Float[Array, "N"]:
        """Sum of x over the used targets of each node. ``targets`` must be the whole batch's."""
        n = self.episodes.nodes.end.shape[0]
        return jax.ops.segment_sum(jnp.where(targets.use, x, 0.0).reshape(-1), targets.node.reshape(-1), n)

    def along(self, x: Float[Array, "N"]) -> Float[Array, "L D"]:
        """Sums of nodes along the paths, without the nodes that do not count there."""
        return jnp.where(self.credit.part, paths.along(x, self.episodes.paths), 0.0)

    @property
    def tokens(self) -> Float[Array, "L D"]:
        """Tokens that count, of each node on each path."""
        return jnp.where(self.credit.part, self.episodes.tokens, 0.0)

    def at(self, y: Array, node: Int[Array, "..."]) -> Float[Array, "... K"]:
        """A value of each path ``[L]``, or of each node on it ``[L, D]``, for every episode through some nodes."""
        return paths.at(y, node, self.episodes.paths)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Given:
    """What is known of target slots before the step, of any shape; ``use`` says which hold a token.

    ``advantage`` and ``returns`` are the (decay, offset) of the credit's tracks, or None.
    """

    node: Int[Array, "..."]
    use: Bool[Array, "..."]
    behavior_logp: Float[Array, "..."]
    old_logp: Float[Array, "..."]
    reference_logp: Float[Array, "..."] | None
    old_value: Float[Array, "..."] | None
    advantage: tuple[Array, Array] | None
    returns: tuple[Array, Array] | None


def make(
    batch: Batch,
    given: Given,
    *,
    logp: Float[Array, "..."],
    entropy: Float[Array, "..."],
    value: Float[Array, "..."] | None,
) -> Targets:
    """Joins scores of tokens with the credit of their nodes.

    Tokens whose episodes all weigh nothing are not used. What stands in unused slots is replaced by 0, so that no
    sentinel reaches a logarithm or its gradient.
    """
    credit, node = batch.credit, given.node
    weight = batch.at(credit.weight, node)
    use = given.use & (weight.sum(axis=-1) > 0)
    weight = jnp.where(use[..., None], weight, 0.0)

    def only(x):
        return None if x is None else jnp.where(use, x, 0.0)

    def pairs(track: Track, affine: tuple[Array, Array] | None):
        found = batch.at(track.node, node)
        if affine is not None:
            found = only(affine[0])[..., None] * found + only(affine[1])[..., None]
        return jnp.where(weight > 0, found, 0.0)

    return Targets(
        node=node, use=use, logp=only(logp), entropy=only(entropy), old_logp=only(given.old_logp),
        behavior_logp=only(given.behavior_logp), reference_logp=only(given.reference_logp), value=only(value),
        old_value=only(given.old_value), advantage=pairs(credit.advantage, given.advantage),
        returns=None if credit.returns is None else pairs(credit.returns, given.returns), weight=weight,
        spread=batch.episodes.variance[node],
    )  # fmt: skip
