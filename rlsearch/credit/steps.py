"""Values that are computed from rewards, of nodes and of turns, and how they are compared.

Axes: N nodes, L paths, D depths, K paths through a node, X entries of any kind.

Rewards that are equal are equal floats. Means and returns that are equal on paper may differ in their last bits, and a
division by their deviation would make a signal of that. So every comparison here is told how large the numbers were
that its values come from, and takes a difference below ``ROUNDING`` of that for none.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlsearch.credit.algebra import Episodes
from rlsearch.tree import paths as layouts
from rlsearch.tree import segments
from rlsearch.tree.segments import Groups

ROUNDING = 1e-6


def settled(difference: Float[Array, "*X"], size: Float[Array, "*X"]) -> Float[Array, "*X"]:
    """A difference of numbers up to ``size``, 0 where it may be rounding alone."""
    return jnp.where(jnp.abs(difference) > ROUNDING * size, difference, 0.0)


def relative(
    x: Float[Array, "X"], size: Float[Array, "X"], use: Bool[Array, "X"], groups: Groups, *, scale: bool
) -> tuple[Float[Array, "X"], Bool[Array, "X"]]:
    """``algebra.relative`` of computed values: a group whose extent may be rounding alone is constant."""
    return beyond_rounding(x, segments.highest(size, use, groups), use, groups, scale=scale)


def beyond_rounding(
    x: Float[Array, "X"], largest: Float[Array, "*X"], use: Bool[Array, "X"], groups: Groups, *, scale: bool
) -> tuple[Float[Array, "X"], Bool[Array, "X"]]:
    """``relative`` where the largest size in each entry's group is known."""
    found = segments.moments(x, use, groups)
    varies = found.extent > ROUNDING * jnp.maximum(largest, 0.0)
    value = jnp.where(varies, x - found.mean, 0.0)
    return value / jnp.where(varies & (found.deviation > 0), found.deviation, 1.0) if scale else value, varies


def largest(episodes: Episodes, x: Float[Array, "L"]) -> Float[Array, "L"]:
    """The largest absolute value of x in each path's question; 0 where nothing could be scored."""
    return jnp.maximum(segments.highest(jnp.abs(x), episodes.vote, episodes.by_question), 0.0)


def of_question(episodes: Episodes, x: Float[Array, "L"]) -> Float[Array, "N"]:
    """What all paths of a question agree on, at each of its nodes; 0 where nothing could be scored."""
    n = episodes.paths.questions
    by_question = jnp.zeros(n, x.dtype).at[jnp.where(episodes.vote, episodes.question, n)].set(x, mode="drop")
    return by_question[jnp.asarray(episodes.nodes.question)]


def counted(episodes: Episodes) -> Bool[Array, "N K"]:
    """Which columns of ``below`` stand for a scored episode that no earlier column stands for."""
    new = layouts.below(episodes.paths.earlier, episodes.paths) < jnp.asarray(episodes.paths.first)[:, None]
    return layouts.below(episodes.scored, episodes.paths) & new


def node_mean(episodes: Episodes, x: Float[Array, "L"]) -> tuple[Float[Array, "N"], Bool[Array, "N"]]:
    """Mean over the scored episodes through each node, each counted once, and whether there are any."""
    return layouts.average(layouts.below(x, episodes.paths), counted(episodes))


def siblings(episodes: Episodes, *, shared_root: bool) -> Int[Array, "N"]:
    """An id that the children of one node share; with ``shared_root`` those of all roots of a question share theirs.

    Roots, which have no siblings, have their own index.
    """
    index, parent = jnp.arange(episodes.nodes.end.shape[0]), jnp.asarray(episodes.nodes.parent)
    group = jnp.where(parent < 0, index, parent)
    if not shared_root:
        return group
    question, top = jnp.asarray(episodes.nodes.question), parent[group] < 0
    first = jax.ops.segment_min(jnp.where(parent < 0, index, index.shape[0]), question, episodes.paths.questions)
    return jnp.where(top & (parent >= 0), first[question], group)


def above(x: Float[Array, "L D"]) -> Float[Array, "L D"]:
    """What stands one node earlier on each path; at the root its own."""
    return jnp.concatenate([x[:, :1], x[:, :-1]], axis=1)


def last_act(episodes: Episodes) -> Bool[Array, "L D"]:
    """The last node of each path that the policy wrote."""
    depth = jnp.arange(episodes.acts.shape[1])[None]
    return episodes.acts & (depth == jnp.where(episodes.acts, depth, layouts.NONE).max(axis=1, keepdims=True))


def among_turns(
    episodes: Episodes, x: Float[Array, "L D"], size: Float[Array, "L"], groups: Groups, *, scale: bool
) -> tuple[Float[Array, "L D"], Bool[Array, "L"]]:
    """x at every turn relative to the scored turns of its group, and the paths with a turn in a group that varies.

    Every (path, turn) is one entry: a turn that several paths share counts once for each, as in their own rollouts.
    ``size`` is that of the numbers on each path; the largest of a question counts.
    """
    use = episodes.acts & episodes.scored[:, None]
    largest = segments.highest(size, episodes.scored, episodes.by_question)[:, None]
    value, varies = beyond_rounding(x, largest, use, groups, scale=scale)
    return jnp.where(use, value, 0.0), (varies & use).any(axis=1)


def turns_of_question(episodes: Episodes) -> Groups:
    """Equal turns of one question as groups."""
    depth = episodes.paths.node.shape[1]
    return replace(episodes.by_question, column=jnp.minimum(episodes.turn, depth - 1), columns=depth)
