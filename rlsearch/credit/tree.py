"""Estimators that read a tree: what an episode or a turn is worth among those that share a part of it.

Axes: N nodes, L paths, D depths, K paths through a node, M blocks, R rows, S slots.

The value of a node is the mean reward of the scored episodes through it, each counted once. ``shared_root`` says that
the prompts of a question's trees are one state, which is so unless contexts begin with something of their own: then the
root's value is the question's mean, and the first turns of all its trees are siblings. Without it every tree is alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.credit import algebra, slots, steps
from rlsearch.credit.algebra import Advantages, Episodes, Track
from rlsearch.credit.group import among
from rlsearch.credit.registry import estimator
from rlsearch.tree import paths as layouts
from rlsearch.tree import segments
from rlsearch.tree.segments import Groups


@estimator("tree", outcome=True)
def tree_grpo(episodes: Episodes, *, scale: bool) -> Advantages:
    """``A_i = A_intra + A_inter``: normalised among the episodes of its tree, plus among all trees of the question.

    Tree-GRPO, arXiv 2509.21240, section 3.3. The two levels are normalised apart and then added, so that neither
    cancels the other; a tree of equal rewards adds nothing within itself and still counts between trees.
    """
    inside, varies_inside = among(episodes, episodes.by_tree, scale=scale)
    across, varies_across = among(episodes, episodes.by_question, scale=scale)
    return algebra.advantages(episodes, episodes.everywhere(inside + across), varies_inside | varies_across)


@estimator("tree", outcome=True)
def tree_intra(episodes: Episodes, *, scale: bool) -> Advantages:
    """The part of Tree-GRPO within trees: ``A_i = (r_i - mean(r)) / std(r)`` over the episodes of its tree."""
    value, varies = among(episodes, episodes.by_tree, scale=scale)
    return algebra.advantages(episodes, episodes.everywhere(value), varies)


@estimator("tree", outcome=True)
def tree_inter(episodes: Episodes, *, scale: bool) -> Advantages:
    """The part of Tree-GRPO between trees: ``A_i = (r_i - mean(r)) / std(r)`` over the episodes of all trees.

    Of the rewards themselves. Normalised again after ``tree_intra``, whose every tree has mean 0, nothing is left that
    tells one tree from another.
    """
    value, varies = among(episodes, episodes.by_question, scale=scale)
    return algebra.advantages(episodes, episodes.everywhere(value), varies)


@estimator("tree", outcome=True)
def tree_rl(
    episodes: Episodes, *, global_weight: float, local_weight: float, reweight: bool, shared_root: bool
) -> Advantages:
    """``A(n) = (g (V(n) - V(root)) + l (V(n) - V(parent))) / sqrt(leaves(n))``.

    TreeRL, arXiv 2506.11902, section 3.3: global and local advantage, whose weights are both 1 there. The division,
    under ``reweight``, keeps early turns, which train once for each leaf below them, from outweighing the others;
    leaves are counted by scored episodes. The value of the node itself is no term of its own (the release adds it).
    """
    value, size = _values(episodes, shared_root=shared_root), steps.largest(episodes, episodes.reward)[:, None]
    overall = steps.settled(value - value[:, :1], size)
    local = steps.settled(value - steps.above(value), size)
    total = global_weight * overall + local_weight * local
    if reweight:
        leaves = steps.counted(episodes).sum(axis=1)
        total = total / jnp.sqrt(jnp.maximum(episodes.along(leaves), 1).astype(total.dtype))
    return algebra.advantages(episodes, total, _varies(episodes, shared_root=shared_root))


@estimator("tree", outcome=True)
def tree_step(episodes: Episodes, *, scale: bool, shared_root: bool) -> Advantages:
    """``A(n) = (V(n) - V(parent)) / std(r)``: what a step adds to the mean outcome of the rollouts that go on from it.

    TreePS-RAG, arXiv 2601.06922: node values by Monte Carlo over descendant outcomes. Chosen here: the step is compared
    with the state that it leaves, and under ``scale`` all steps are divided by the deviation of the rewards below the
    root, so that their sum along a path is the episode's group-relative advantage.
    """
    value, size = _values(episodes, shared_root=shared_root), steps.largest(episodes, episodes.reward)[:, None]
    _, deviation = _moments(episodes, episodes.by_question if shared_root else episodes.by_tree, scale=scale)
    step = steps.settled(value - steps.above(value), size) / deviation[:, None]
    return algebra.advantages(episodes, step, _varies(episodes, shared_root=shared_root))


@estimator("tree", outcome=True)
def tempo(episodes: Episodes, *, scale: bool, whole_turn: bool) -> Advantages:
    """``A_i(t) = (r_i - mean(r) + V(s_{t+1}) - V(s_t)) / std(r)``: GRPO plus a value difference at branches.

    TEMPO on the prefix tree of a question's episodes (P2T), arXiv 2509.18314; prefixes that are equal must be one node.
    V changes only where a path enters one of several branches: at the first token of a node with siblings, and the
    difference is 0 everywhere else. With ``whole_turn`` all tokens of that node have it, since a turn is the action;
    without, the first token alone, as in the paper, which needs the batch's tokens. Both parts have one scale.
    """
    group, varies = among(episodes, episodes.by_question, scale=scale)
    value, size = _values(episodes, shared_root=True), steps.largest(episodes, episodes.reward)[:, None]
    _, deviation = _moments(episodes, episodes.by_question, scale=scale)
    branch = steps.settled(value - steps.above(value), size) / deviation[:, None]
    if whole_turn:
        return algebra.advantages(episodes, episodes.everywhere(group) + branch, varies)
    if episodes.slots is None:
        raise ValueError("tempo with whole_turn=False needs the batch's tokens")
    by_node = layouts.below(branch, episodes.paths)[:, 0]
    ahead, _ = slots.place(episodes.slots, episodes.nodes.end.shape[0])
    first = episodes.slots.use & (ahead == 0)
    offset = jnp.where(first, by_node[episodes.slots.node], 0.0)
    track = Track(episodes.everywhere(group), jnp.ones_like(offset), offset)
    return Advantages(track, varies, jnp.ones_like(episodes.acts))


@estimator("tree", outcome=True)
def child_softmax(
    episodes: Episodes, *, temperature: float, difference: bool, scale: bool, shared_root: bool
) -> Advantages:
    """``V(n) = sum_c w_c V(c)``, ``w = softmax(V(c) / temperature)`` over the children of n; a turn's credit is V.

    AT2PO, arXiv 2601.04767: outcomes are backed up so that a turn is judged by the better of what followed it. The
    value of a leaf is its reward relative to the question (by its deviation under ``scale``), so that values have a
    baseline and may be used as advantages. With ``difference`` it is ``V(n) - V(parent)``. A high temperature gives the
    mean over children, a low one the best child.
    """
    leaf, varies = among(episodes, episodes.by_question, scale=scale)
    value = _softmax_backup(episodes, leaf, temperature=temperature, shared_root=shared_root)
    if difference:
        value = steps.settled(value - steps.above(value), steps.largest(episodes, leaf)[:, None])
    return algebra.advantages(episodes, value, varies)


@estimator("tree", outcome=True)
def siblings(episodes: Episodes, *, scale: bool, shared_root: bool) -> Advantages:
    """``A(n) = (V(n) - mean_s V(s)) / std_s V(s)`` over the children s of its parent, n among them.

    Sibling-GRPO of V-STAR, arXiv 2602.10699, section 4.3: each child counts once, whatever lies below it. An only child
    and children of equal value have 0; a child below which nothing could be scored is none of them.
    """
    value, found = steps.node_mean(episodes, episodes.reward)
    size = steps.of_question(episodes, steps.largest(episodes, episodes.reward))
    use = found & (jnp.asarray(episodes.nodes.parent) >= 0)
    group = steps.siblings(episodes, shared_root=shared_root)
    result, _ = steps.relative(value, size, use, Groups(group, value.shape[0]), scale=scale)
    return algebra.advantages(
        episodes, episodes.along(jnp.where(use, result, 0.0)), _varies(episodes, shared_root=shared_root)
    )


@estimator("tree", outcome=True)
def through_node(episodes: Episodes, *, scale: bool) -> Advantages:
    """``A(n)``: the mean over the episodes through n of their group-relative advantages.

    ContextPilot: the advantage of an action averages over the branches that pass through it. The mean of
    ``(r_i - mean(r)) / std(r)`` is ``(V(n) - mean(r)) / std(r)``, which is what is computed.
    """
    value, size = _values(episodes, shared_root=False), steps.largest(episodes, episodes.reward)[:, None]
    mean, deviation = _moments(episodes, episodes.by_question, scale=scale)
    result = steps.settled(value - mean[:, None], size) / deviation[:, None]
    return algebra.advantages(episodes, result, _varies(episodes, shared_root=True))


@estimator("tree", outcome=True)
def path_level(episodes: Episodes, *, mix: float, gain: float, scale: bool, shared_root: bool) -> Advantages:
    """``A(n) = (s(n) - mean(s)) / std(s)`` over all turns of the question, ``s(n) = V(n) + gain (V(n) - b(n))``.

    MARS^2, arXiv 2604.14564: the tree-consistent baseline ``b(n) = (1 - mix) V(parent) + mix mean V(other siblings)``
    asks of a node to improve on its parent and to beat its siblings. There every node is a whole solution with a reward
    of its own; here a turn's reward is its value, so that an only child equals its parent and gains nothing.
    A turn counts once, however many paths share it; turns without sampled tokens are not counted.
    """
    nodes, n = episodes.nodes, episodes.nodes.end.shape[0]
    parent = jnp.asarray(nodes.parent)
    value, found = steps.node_mean(episodes, episodes.reward)
    size = steps.of_question(episodes, steps.largest(episodes, episodes.reward))
    group, use = steps.siblings(episodes, shared_root=shared_root), found & (parent >= 0)
    around = segments.moments(value, use, Groups(group, n))
    others = value + (around.mean - value) * around.count / jnp.maximum(around.count - 1, 1)
    if shared_root:
        question_mean, _ = _moments(episodes, episodes.by_question, scale=False)
        value = jnp.where(parent < 0, steps.of_question(episodes, question_mean), value)
    above = value[jnp.maximum(parent, 0)]
    baseline = above + mix * (others - above)
    shaped = value + gain * steps.settled(value - baseline, size)
    turns = use & (jnp.asarray(nodes.tokens) > 0)
    questions = Groups(jnp.asarray(nodes.question), episodes.paths.questions)
    result, varies = steps.relative(shaped, size, turns, questions, scale=scale)
    return algebra.advantages(episodes, episodes.along(jnp.where(turns, result, 0.0)), varies[episodes.leaf])


def _values(episodes: Episodes, *, shared_root: bool) -> Float[Array, "L D"]:
    """The value of each node along each path."""
    value = episodes.along(steps.node_mean(episodes, episodes.reward)[0])
    if not shared_root:
        return value
    return value.at[:, 0].set(_moments(episodes, episodes.by_question, scale=False)[0])


def _moments(episodes: Episodes, groups: Groups, *, scale: bool) -> tuple[Float[Array, "L"], Float[Array, "L"]]:
    """Mean of the rewards in each path's group, and their deviation, 1 where they are constant or without ``scale``."""
    found = segments.moments(episodes.reward, episodes.vote, groups)
    return found.mean, jnp.where(found.constant, 1.0, found.deviation) if scale else jnp.ones_like(found.mean)


def _varies(episodes: Episodes, *, shared_root: bool) -> Bool[Array, "L"]:
    """Paths below a root whose rewards differ."""
    return among(episodes, episodes.by_question if shared_root else episodes.by_tree, scale=False)[1]


def _softmax_backup(
    episodes: Episodes, leaf: Float[Array, "L"], *, temperature: float, shared_root: bool
) -> Float[Array, "L D"]:
    """Values of nodes along each path, from the leaves upwards, one depth after the other.

    At each depth a node stands for itself on the first path through it, and a sum over children is one over rows. A
    subtree in which nothing could be scored is left out; a node whose children are equal has exactly their value.
    """
    rows, on = episodes.leaf.shape[0], layouts.on_path(episodes.paths)
    row = jnp.arange(rows)
    first = jnp.where(on, jnp.asarray(episodes.paths.first)[jnp.maximum(episodes.paths.node, 0)], row[:, None])
    group = first
    if shared_root:
        n = episodes.paths.questions
        top = jax.ops.segment_min(jnp.where(episodes.used, row, rows), episodes.question, n)[episodes.question]
        group = first.at[:, 0].set(jnp.where(episodes.used, top, row))

    def one(later, here):
        below, scored, first_below, on_below = later
        first, group, on = here
        head = on_below & scored & (first_below == row)
        groups = Groups(group, rows)
        best = segments.highest(below, head, groups)
        best = jnp.where(jnp.isfinite(best), best, 0.0)
        weight = jnp.where(head, jnp.exp((below - best) / temperature), 0.0)
        total = segments.total(weight, head, groups)
        value = best + segments.total(weight * (below - best), head, groups) / jnp.where(total > 0, total, 1.0)
        value = jnp.where(on_below, value, leaf)
        scored = jnp.where(on_below, total > 0, episodes.scored)
        return (value, scored, first, on), value

    start = (leaf, episodes.scored, row, jnp.zeros(rows, bool))
    _, found = jax.lax.scan(one, start, (first.T, group.T, on.T), reverse=True)
    return found.T
