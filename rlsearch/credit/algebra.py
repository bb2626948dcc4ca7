"""What estimators are composed of: the episodes of a batch, and operations on values of episodes and of nodes.

Axes: N nodes, R reward terms, L paths, D depths, K paths through a node (see ``tree.paths``).

Every operation has a defined answer for the ordinary troubles: an episode that could not be scored, a group of one, a
group of equal rewards, an empty stratum and a partial group give advantage 0 and have no part in any denominator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlsearch.credit.slots import Slots
from rlsearch.tree import paths as layouts
from rlsearch.tree import segments
from rlsearch.tree.forest import Nodes
from rlsearch.tree.paths import Paths


@dataclass(frozen=True)
class Episodes:
    """A batch's node table seen by its paths. An episode of several contexts has several paths, and one vote.

    Attributes:
      nodes: the table.
      weights: of the reward columns.
      slots: every sampled token of the batch with what models say of it, for estimators that look inside nodes; None
        where credit is computed without the tokens.
      penalty: sum over each node's tokens of what the KL to the reference takes from the reward, or None.
    """

    nodes: Nodes
    weights: tuple[float, ...]
    slots: Slots | None
    penalty: Float[Array, "N"] | None

    @property
    def paths(self) -> Paths:
        """The layout that ``along`` and ``below`` lead into."""
        return self.nodes.paths

    @cached_property
    def leaf(self) -> Int[Array, "L"]:
        """Node in which each path ends."""
        return layouts.leaf_of(self.paths)

    @cached_property
    def used(self) -> Bool[Array, "L"]:
        """Rows that hold a path."""
        return layouts.used(self.paths)

    @cached_property
    def terms(self) -> Float[Array, "L R"]:
        """The reward columns of each episode; NaN where a term could not be scored."""
        return jnp.asarray(self.nodes.rewards)[self.leaf]

    @cached_property
    def scored(self) -> Bool[Array, "L"]:
        """Episodes that could be scored in every term of non-zero weight."""
        counts = jnp.asarray(self.weights, jnp.float32)[None] != 0
        return self.used & ~(jnp.isnan(self.terms) & counts).any(axis=1)

    @cached_property
    def reward(self) -> Float[Array, "L"]:
        """``outcome`` less the penalty of the episode's tokens, over all its contexts."""
        if self.penalty is None:
            return self.outcome
        total = jax.ops.segment_sum(self.along(self.penalty).sum(axis=1), self.episode, self.episode.shape[0])
        return jnp.where(self.scored, self.outcome - total[self.episode], 0.0)

    @cached_property
    def outcome(self) -> Float[Array, "L"]:
        """The weighted sum of the reward terms; 0 where it could not be scored."""
        # No matmul: it may round rewards to bfloat16, and equal rows to different sums.
        terms = jnp.where(jnp.isnan(self.terms), 0.0, self.terms) * jnp.asarray(self.weights, jnp.float32)[None]
        return jnp.where(self.scored, terms.sum(axis=1), 0.0)

    @cached_property
    def episode(self) -> Int[Array, "L"]:
        """Index of each path's episode: that of the first path with its id."""
        number = jnp.asarray(self.nodes.episode)[self.leaf]
        row = jnp.arange(number.shape[0])
        first = jax.ops.segment_min(jnp.where(self.used, row, row.shape[0]), number, self.nodes.end.shape[0])
        return jnp.where(self.used, first[number], row)

    @cached_property
    def vote(self) -> Bool[Array, "L"]:
        """The path that stands for its episode where episodes are counted: the first, if the episode was scored."""
        return self.scored & (self.episode == jnp.arange(self.episode.shape[0]))

    @cached_property
    def question(self) -> Int[Array, "L"]:
        """Index of each path's question."""
        return jnp.asarray(self.nodes.question)[self.leaf]

    @cached_property
    def tree(self) -> Int[Array, "L"]:
        """Index of each path's tree."""
        return segments.tree_index(jnp.asarray(self.nodes.parent))[self.leaf]

    @cached_property
    def tokens(self) -> Float[Array, "L D"]:
        """Sampled tokens of each node on each path."""
        return self.along(jnp.asarray(self.nodes.tokens).astype(jnp.float32))

    @cached_property
    def acts(self) -> Bool[Array, "L D"]:
        """Nodes on each path that the policy wrote."""
        return self.tokens > 0

    @cached_property
    def turn(self) -> Int[Array, "L D"]:
        """Turns of the policy before each node on each path."""
        return self.along(jnp.asarray(self.nodes.turn))

    def along(self, x: Array) -> Array:
        """Values of nodes ``[N]`` along the paths ``[L, D]``, 0 behind the leaf."""
        return layouts.along(x, self.paths)

    def note(self, name: str) -> Float[Array, "N"]:
        """A column of notes; ``estimators.check_notes`` has refused tables without it."""
        return jnp.asarray(self.nodes.notes[name])

    def everywhere(self, x: Array) -> Array:
        """A value of each episode ``[L]`` at every node of its path ``[L, D]``."""
        return jnp.where(layouts.on_path(self.paths), x[:, None], jnp.zeros((), x.dtype))


def relative(
    x: Float[Array, "X"], use: Bool[Array, "X"], group: Int[Array, "X"], groups: int, *, scale: bool
) -> tuple[Float[Array, "X"], Bool[Array, "X"]]:
    """x minus its mean over ``use`` in its group, divided by the population standard deviation where ``scale``.

    Returns the result, 0 in groups where x is constant, and whether x varies in each entry's group.
    """
    mean, deviation, constant = segments.moments(x, use, group, groups)
    centred = jnp.where(constant, 0.0, x - mean)
    return (centred / jnp.where(constant, 1.0, deviation) if scale else centred), ~constant


def partition(*keys: Array) -> Int[Array, "X"]:
    """Index of each entry's combination of keys, ``[X]`` each, in lexicographic order; NaN is like nothing else."""
    order = jnp.lexsort(keys[::-1])
    new = jnp.stack([key[order][1:] != key[order][:-1] for key in keys]).any(axis=0)
    index = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(new.astype(jnp.int32))])
    return jnp.zeros(order.shape[0], jnp.int32).at[order].set(index)


def difference(value: Float[Array, "N"], parent: Int[Array, "N"]) -> Float[Array, "N"]:
    """Value of each node minus value of the node above; 0 at roots. Along a path it telescopes to leaf minus root."""
    return jnp.where(parent < 0, 0.0, value - value[jnp.maximum(parent, 0)])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Track:
    """A number for every token and episode through it: ``decay[token] x node[its node, episode] + offset[token]``.

    Attributes:
      node: of each node on each path, as ``[L, D]``, or in ``Credit`` as ``[N, K]``.
      decay: of every target, ``[M, R, S]``; None where it is 1 and ``offset`` is 0, so that all tokens of a node agree.
      offset: of every target; None with ``decay``.
    """

    node: Float[Array, "..."]
    decay: Float[Array, "M R S"] | None = None
    offset: Float[Array, "M R S"] | None = None

    @property
    def affine(self) -> tuple[Float[Array, "M R S"], Float[Array, "M R S"]] | None:
        """``decay`` and ``offset``, or None where all tokens of a node agree."""
        return None if self.decay is None else (self.decay, self.offset)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Advantages:
    """What an estimator finds.

    Attributes:
      advantage: of each episode's tokens at each node of its path.
      varies: episodes that carry a signal; the others may be left out of every denominator.
      use: nodes of each path whose tokens take part.
      returns: what a critic should have said of the state before each token, or None.
    """

    advantage: Track
    varies: Bool[Array, "L"]
    use: Bool[Array, "L D"]
    returns: Track | None = None


def advantages(
    episodes: Episodes, value: Float[Array, "L D"], varies: Bool[Array, "L"], use: Bool[Array, "L D"] | None = None
) -> Advantages:
    """Advantages that all tokens of a node share; without ``use`` every node of a path takes part."""
    return Advantages(Track(value), varies, jnp.ones_like(episodes.acts) if use is None else use)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Credit:
    """What the tokens of every node are worth to each episode that goes through it, and what they weigh there.

    Objectives are not linear in the advantage, so a shared token is not given the sum: the loss is the weighted sum of
    the objective at each of these pairs, which is what it is when every path is computed on its own.

    Attributes:
      advantage: of each path through each node; 0 where there is none.
      returns: likewise what a critic should have said, or None.
      weight: the reduction's weight of one token of the node on that path; 0 where it does not count.
      part: nodes of each path whose tokens count.
      spread: population variance of the rewards in the node's question, for clips that depend on it.
      kept: leaves of the episodes that take part.
    """

    advantage: Track
    returns: Track | None
    weight: Float[Array, "N K"]
    part: Bool[Array, "L D"]
    spread: Float[Array, "N"]
    kept: Bool[Array, "N"]

    @property
    def share(self) -> Float[Array, "N"]:
        """What one token of each node weighs over all its episodes."""
        return self.weight.sum(axis=1)

    @property
    def mean(self) -> Float[Array, "N"]:
        """Each node's advantage averaged over its episodes by weight; 0 where it weighs nothing. For reports."""
        share = self.share
        total = (self.weight * self.advantage.node).sum(axis=1)
        return jnp.where(share > 0, total / jnp.where(share > 0, share, 1.0), 0.0)
