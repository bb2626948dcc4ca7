"""Refuses forests that cannot be: run on the first batch of every run, and by the tests."""

from __future__ import annotations

import numpy as np

from rlsearch.tree.forest import NONE, Forest, Nodes, leaves


def check(forest: Forest) -> None:
    """Checks structure and bookkeeping; what passes is a forest in depth-first order, with the mask of its paths.

    Raises:
      ValueError: names the first offending token or node and what is wrong with it.
    """
    n = len(forest.nodes.end)
    # Indices first: what follows reads through them.
    _refuse("node", {"parent after its child": (forest.nodes.parent >= np.arange(n)) | (forest.nodes.parent < NONE)})
    _refuse(
        "token",
        {
            "node out of order": np.diff(forest.token_node, prepend=0) < 0,
            "node out of range": (forest.token_node < 0) | (forest.token_node >= n),
            "prev not before it": (forest.prev >= np.arange(len(forest.prev))) | (forest.prev < NONE),
        },
    )
    _check_nodes(forest)
    _check_tokens(forest)


def _check_nodes(forest: Forest) -> None:
    nodes = forest.nodes
    index, child = np.arange(len(nodes.end)), nodes.parent != NONE
    _refuse(
        "node",
        {
            "end out of order": (nodes.end <= index) | (nodes.end > len(index)),
            "not inside its parent": child & (nodes.end > nodes.end[nodes.parent]),
            "end differs from its descendants'": nodes.end != index + _sizes(nodes),
            "question differs from its parent's": child & (nodes.question != nodes.question[nodes.parent]),
            "a leaf without an episode, or an inner node with one": leaves(nodes) != (nodes.end == index + 1),
            "sampled token count differs from its tokens": nodes.tokens
            != np.bincount(forest.token_node[forest.sampled], minlength=len(index)),
        },
    )


def _check_tokens(forest: Forest) -> None:
    token, root = np.arange(len(forest.token_id)), forest.prev == NONE
    behind = np.where(root, 0, forest.prev)
    _refuse(
        "token",
        {
            "end differs from its node's": forest.token_end
            != np.searchsorted(forest.token_node, forest.nodes.end[forest.token_node]),
            "prev across trees": ~root & (forest.token_end[behind] <= token),
            "position is not its predecessor's plus one": forest.position
            != np.where(root, 0, forest.position[behind] + 1),
            "position is not the number of tokens before it on its path": forest.position != _depths(forest),
            "sampled without a prefix": forest.sampled & root,
            "behaviour log-probability is not finite": ~np.isfinite(forest.behavior_logp),
            "sampled with positive log-probability": forest.sampled & (forest.behavior_logp > 0),
            "log-probability on a token that nobody sampled": ~forest.sampled & (forest.behavior_logp != 0),
        },
    )


def _sizes(nodes: Nodes) -> np.ndarray:
    """Nodes of each subtree, counted from the parents alone."""
    sizes = np.ones(len(nodes.end), np.int64)
    for node in range(len(sizes) - 1, -1, -1):
        if nodes.parent[node] != NONE:
            sizes[nodes.parent[node]] += sizes[node]
    return sizes


def _depths(forest: Forest) -> np.ndarray:
    """Tokens k < q that may be seen by token q, by their ends alone."""
    closed = np.bincount(forest.token_end, minlength=len(forest.token_end) + 1)[:-1]
    return np.arange(len(closed)) - np.cumsum(closed)


def _refuse(what: str, faults: dict[str, np.ndarray]) -> None:
    for fault, where in faults.items():
        if where.any():
            raise ValueError(f"forest: {what} {int(np.flatnonzero(where)[0])}: {fault}")
