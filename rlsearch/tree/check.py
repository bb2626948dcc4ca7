"""Refuses forests that cannot be: run on the first batch of every run, and by the tests."""

from __future__ import annotations

import numpy as np

from rlsearch.tree.forest import NONE, Forest, leaves


def check(forest: Forest) -> None:
    """Checks structure and bookkeeping.

    Raises:
      ValueError: names the first offending token or node and what is wrong with it.
    """
    nodes, n, t = forest.nodes, len(forest.nodes.end), len(forest.token_id)
    index = np.arange(n)
    _refuse(
        "node",
        {
            "end out of order": (nodes.end <= index) | (nodes.end > n),
            "parent after its child": nodes.parent >= index,
            "not inside its parent": (nodes.parent != NONE) & (nodes.end > nodes.end[nodes.parent]),
            "question differs from its parent's": (nodes.parent != NONE)
            & (nodes.question != nodes.question[nodes.parent]),
            "a leaf without an episode, or an inner node with one": leaves(nodes) != (nodes.end == index + 1),
            "sampled token count differs from its tokens": nodes.tokens
            != np.bincount(forest.token_node[forest.sampled], minlength=n),
        },
    )
    token = np.arange(t)
    root = forest.prev == NONE
    behind = np.where(root, 0, forest.prev)
    _refuse(
        "token",
        {
            "node out of order": np.diff(forest.token_node, prepend=0) < 0,
            "end out of order": (forest.token_end <= token) | (forest.token_end > t),
            "prev not before it": forest.prev >= token,
            "prev across trees": ~root & (forest.token_end[behind] <= token),
            "position is not its predecessor's plus one": forest.position
            != np.where(root, 0, forest.position[behind] + 1),
            "sampled without a prefix": forest.sampled & root,
            "behaviour log-probability is not finite": ~np.isfinite(forest.behavior_logp),
            "sampled with positive log-probability": forest.sampled & (forest.behavior_logp > 0),
            "log-probability on a token that nobody sampled": ~forest.sampled & (forest.behavior_logp != 0),
        },
    )


def _refuse(what: str, faults: dict[str, np.ndarray]) -> None:
    for fault, where in faults.items():
        if where.any():
            raise ValueError(f"forest: {what} {int(np.flatnonzero(where)[0])}: {fault}")
