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
from rlsearch.tree.segments import Groups


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
        return jnp.where(self.scored, self.outcome - self.over_episode(self.along(self.penalty)), 0.0)

    @cached_property
    def outcome(self) -> Float[Array, "L"]:
        """The weighted sum of the reward terms; 0 where it could not be scored."""
        # No matmul: it may round rewards to bfloat16, and equal rows to different sums.
        terms = jnp.where(jnp.isnan(self.terms), 0.0, self.terms) * jnp.asarray(self.weights, jnp.float32)[None]
        return jnp.where(self.scored, terms.sum(axis=1), 0.0)

    @cached_property
    def episode(self) -> Int[Array, "L"]:
        """Index of each path's episode: that of its first path."""
        return jnp.asarray(self.paths.episode)

    @cached_property
    def vote(self) -> Bool[Array, "L"]:
        """The path that stands for its episode where episodes are counted: the first, if the episode was scored."""
        return self.scored & (self.episode == jnp.arange(self.episode.shape[0]))

    @cached_property
    def question(self) -> Int[Array, "L"]:
        """Index of each path's question."""
        return jnp.asarray(self.nodes.question)[self.leaf]

    @property
    def by_question(self) -> Groups:
        """The paths of each question."""
        return Groups(self.question, self.paths.questions)

    @property
    def by_tree(self) -> Groups:
        """The paths of each tree."""
        return Groups(self.tree, self.tree.shape[0])

    @property
    def by_episode(self) -> Groups:
        """The paths of each episode."""
        return Groups(self.episode, self.episode.shape[0])

    @cached_property
    def variance(self) -> Float[Array, "N"]:
        """Population variance of the rewards in each node's question."""
        found, n = segments.moments(self.reward, self.vote, self.by_question), self.paths.questions
        variance = jnp.where(found.constant, 0.0, jnp.square(found.deviation))
        of_question = jnp.zeros(n).at[jnp.where(self.used, self.question, n)].max(variance, mode="drop")
        return of_question[jnp.asarray(self.nodes.question)]

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

    def over_episode(self, y: Float[Array, "L D"]) -> Float[Array, "L"]:
        """Sum over the nodes of all contexts of each path's episode."""
        return segments.total(y.sum(axis=1), self.used, self.by_episode)

    def everywhere(self, x: Array) -> Array:
        """A value of each episode ``[L]`` at every node of its path ``[L, D]``."""
        return jnp.where(layouts.on_path(self.paths), x[:, None], jnp.zeros((), x.dtype))


def relative(
    x: Float[Array, "X"], use: Bool[Array, "X"], groups: Groups, *, scale: bool
) -> tuple[Float[Array, "X"], Bool[Array, "X"]]:
    """x minus its mean over ``use`` in its group, divided by the population standard deviation where ``scale``.

    Returns the result, 0 in groups where x is constant, and whether x varies in each entry's group.
    """
    found = segments.moments(x, use, groups)
    centred = jnp.where(found.constant, 0.0, x - found.mean)
    return (centred / jnp.where(found.constant, 1.0, found.deviation) if scale else centred), ~found.constant


def partition(*keys: Array) -> Int[Array, "X"]:
    """Index of the first entry that has the same combination of keys, ``[X]`` each; NaN is like nothing else.

    By hashing, in rounds: the first entry in each bucket takes out all that are equal to it, and the others are hashed
    anew. So it costs a few passes over the entries, and no sort.
    """
    row, size = jnp.arange(keys[0].shape[0]), 2 * keys[0].shape[0]
    bits = [jax.lax.bitcast_convert_type(jnp.where(key == 0, jnp.zeros_like(key), key), jnp.uint32) for key in keys]
    lone = jnp.stack([key != key for key in keys]).any(axis=0)

    def one(state):
        number, found = state
        mixed = jnp.full(row.shape, number * jnp.uint32(0x9E3779B9), jnp.uint32)
        for part in bits:
            mixed = (mixed ^ part) * jnp.uint32(0x85EBCA6B)
            mixed = mixed ^ (mixed >> 15)
        bucket = (mixed % jnp.uint32(size)).astype(jnp.int32)
        first = jax.ops.segment_min(jnp.where(found < 0, row, row.shape[0]), bucket, size)[bucket]
        first = jnp.minimum(first, row.shape[0] - 1)
        same = jnp.stack([part[first] == part for part in bits]).all(axis=0)
        return number + 1, jnp.where((found < 0) & same, first, found)

    start = (jnp.uint32(1), jnp.where(lone, row, -1))
    return jax.lax.while_loop(lambda state: (state[1] < 0).any(), one, start)[1]


def difference(value: Float[Array, "N"], parent: Int[Array, "N"]) -> Float[Array, "N"]:
    """Value of each node minus value of the node above; 0 at roots. Along a path it telescopes to leaf minus root."""
    return jnp.where(parent < 0, 0.0, value - value[jnp.maximum(parent, 0)])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Track:
    """A number for every token and episode through it: ``decay[token] x node[its node, episode] + offset[token]``.

    Attributes:
      node: of each node on each path.
      decay: of every target, ``[M, R, S]``; None where it is 1 and ``offset`` is 0, so that all tokens of a node agree.
      offset: of every target; None with ``decay``.
    """

    node: Float[Array, "L D"]
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
      advantage: of each node on each path; 0 where it does not count.
      returns: likewise what a critic should have said, or None.
      weight: the reduction's weight of one token of the node on that path; 0 where it does not count.
      part: nodes of each path whose tokens count.
      kept: leaves of the episodes that take part.
    """

    advantage: Track
    returns: Track | None
    weight: Float[Array, "L D"]
    part: Bool[Array, "L D"]
    kept: Bool[Array, "N"]

    def mean(self, paths: Paths) -> Float[Array, "N"]:
        """Each node's advantage averaged over its episodes by weight; 0 where it weighs nothing. For reports."""
        share, total = (layouts.below(x, paths).sum(axis=1) for x in (self.weight, self.weight * self.advantage.node))
        return jnp.where(share > 0, total / jnp.where(share > 0, share, 1.0), 0.0)
