"""The slow twin of credit: dictionaries, recursion and loops over leaves, in double precision."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable

import numpy as np

from rlsearch.tree.forest import Nodes
from tests.tree.random_forests import ancestors

Values = dict[int, float]  # by leaf


def totals(nodes: Nodes, weights: tuple[float, ...]) -> Values:
    """The weighted reward of every leaf that can be scored."""
    found = {}
    for leaf in np.flatnonzero(nodes.episode >= 0).tolist():
        terms = [(float(r), w) for r, w in zip(nodes.rewards[leaf], weights, strict=True) if w]
        if not any(math.isnan(reward) for reward, _ in terms):
            found[leaf] = sum(reward * weight for reward, weight in terms)
    return found


def relative(values: Values, group: Callable[[int], Hashable], *, scale: bool) -> tuple[Values, set[int]]:
    """Each value against the others of its group, and the leaves in groups that vary."""
    result, varying = {}, set()
    for leaf, value in values.items():
        members = [other for peer, other in values.items() if group(peer) == group(leaf)]
        result[leaf] = 0.0
        if max(members) > min(members):
            varying.add(leaf)
            result[leaf] = (value - statistics.fmean(members)) / (statistics.pstdev(members) if scale else 1.0)
    return result, varying


def advantages(nodes: Nodes, values: Values, estimator: str, *, scale: bool) -> tuple[Values, set[int]]:
    across, varying = relative(values, lambda leaf: int(nodes.question[leaf]), scale=scale)
    if estimator == "grpo":
        return across, varying
    inside, _ = relative(values, lambda leaf: ancestors(nodes.parent, leaf)[-1], scale=scale)
    return {leaf: inside[leaf] + across[leaf] for leaf in values}, varying


def length(nodes: Nodes, leaf: int) -> int:
    """Tokens that the policy sampled on the path to a leaf."""
    return sum(int(nodes.tokens[node]) for node in ancestors(nodes.parent, leaf))


def leaf_weights(nodes: Nodes, kept: set[int], reduction: str) -> Values:
    """What one token of each kept episode weighs. An episode without tokens has no part in any denominator."""
    lengths = {leaf: length(nodes, leaf) for leaf in kept if length(nodes, leaf)}
    if reduction == "token":
        return {leaf: 1 / sum(lengths.values()) for leaf in lengths}
    return {leaf: 1 / (len(lengths) * tokens) for leaf, tokens in lengths.items()}


def node_sum(nodes: Nodes, node: int, values: Values) -> float:
    """Sum over the leaves below a node."""
    children = np.flatnonzero(nodes.parent == node).tolist()
    return values.get(node, 0.0) + sum(node_sum(nodes, child, values) for child in children)
