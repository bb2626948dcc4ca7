"""Refuses forests that cannot be: run on the first batch of every run, and by the tests."""

from __future__ import annotations

import numpy as np

from rlsearch.tree.forest import NONE, Forest, Kind, Nodes, leaves
from rlsearch.tree.paths import lay_out

TOKEN_COLUMNS = ("token_id", "token_node", "position", "prev", "token_end", "sampled", "behavior_logp")
NODE_COLUMNS = ("end", "parent", "kind", "turn", "question", "episode", "role", "version", "tokens", "rewards")


def check(forest: Forest) -> None:
    """Checks structure and bookkeeping; what passes is a forest in depth-first order, with the mask of its paths.

    Raises:
      ValueError: names the first offending token, node or path and what is wrong with it.
    """
    _check_lengths(forest)
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
    _check_episodes(forest.nodes)
    _check_paths(forest.nodes)
    _check_tokens(forest)


def _check_lengths(forest: Forest) -> None:
    nodes = forest.nodes
    tokens, count = len(forest.token_id), len(nodes.end)
    columns = [(name, getattr(forest, name), tokens, "tokens") for name in TOKEN_COLUMNS]
    columns += [(name, getattr(nodes, name), count, "nodes") for name in NODE_COLUMNS]
    columns += [(f"note {name!r}", column, count, "nodes") for name, column in nodes.notes.items()]
    for name, column, length, what in columns:
        if len(column) != length or column.ndim != 1 + (name == "rewards"):
            raise ValueError(f"forest: {name}: shape {column.shape} for {length} {what}")


def _check_nodes(forest: Forest) -> None:
    nodes = forest.nodes
    index, child = np.arange(len(nodes.end)), nodes.parent != NONE
    _refuse(
        "node",
        {
            "end out of order": (nodes.end <= index) | (nodes.end > len(index)),
            "not inside its parent": child & (nodes.end > nodes.end[nodes.parent]),
            "end differs from its descendants'": nodes.end != index + _sizes(nodes),
            "no such kind": ~np.isin(nodes.kind, list(Kind)),
            "turn before its parent's": (nodes.turn < 0) | (child & (nodes.turn < nodes.turn[nodes.parent])),
            "negative question": nodes.question < 0,
            "question differs from its parent's": child & (nodes.question != nodes.question[nodes.parent]),
            "a leaf without an episode, or an inner node with one": leaves(nodes) != (nodes.end == index + 1),
            "sampled token count differs from its tokens": nodes.tokens
            != np.bincount(forest.token_node[forest.sampled], minlength=len(index)),
        },
    )
    _refuse("node", {f"note {name!r} is not finite": ~np.isfinite(column) for name, column in nodes.notes.items()})


def _check_episodes(nodes: Nodes) -> None:
    """Leaves of one episode agree; the first of each is what the others are compared with."""
    ends, n = leaves(nodes), len(nodes.end)
    _refuse("node", {"episode out of range": ends & ((nodes.episode < 0) | (nodes.episode >= n))})
    first = np.full(n, n, np.int64)
    np.minimum.at(first, nodes.episode[ends], np.flatnonzero(ends))
    first = np.where(ends, first[nodes.episode], np.arange(n))
    rewards = np.asarray(nodes.rewards)
    same = (rewards == rewards[first]) | (np.isnan(rewards) & np.isnan(rewards[first]))
    _refuse(
        "node",
        {
            "its episode is of another question too": nodes.question != nodes.question[first],
            "rewards differ from those of its episode's first leaf": ~same.all(axis=1),
            "infinite reward": np.isinf(rewards).any(axis=1),
            "reward at an inner node": ~ends & (rewards != 0).any(axis=1),
        },
    )


def _check_paths(nodes: Nodes) -> None:
    """The layout is what the table gives, in the room that it has."""
    found = nodes.paths
    room, wanted = found.room, lay_out(nodes.end, nodes.parent, nodes.question, nodes.episode, **found.room)
    needed = wanted.room
    for name, size in room.items():
        if size < needed[name]:
            raise ValueError(f"forest: paths: room for {size} {name} is too little, {needed[name]} are needed")
    _refuse("path", {"nodes differ from the table's": (found.node != wanted.node).any(axis=1)})
    for name in ("depth", "first", "count"):
        column, truth = getattr(found, name), getattr(wanted, name)
        if column.shape != truth.shape:
            raise ValueError(f"forest: paths.{name}: shape {column.shape} for {len(truth)} nodes")
        _refuse("node", {f"paths.{name} differs from the table's": column != truth})
    for name in ("episode", "earlier"):
        _refuse("path", {f"paths.{name} differs from the table's": getattr(found, name) != getattr(wanted, name)})


def _check_tokens(forest: Forest) -> None:
    token, root = np.arange(len(forest.token_id)), forest.prev == NONE
    behind = np.where(root, 0, forest.prev)
    ends = np.searchsorted(forest.token_node, forest.nodes.end[forest.token_node])
    _refuse("token", {"negative id": forest.token_id < 0, "end differs from its node's": forest.token_end != ends})
    missing = forest.sampled & np.isnan(forest.behavior_logp)
    _refuse(
        "token",
        {
            "prev across trees": ~root & (forest.token_end[behind] <= token),
            "position is not its predecessor's plus one": forest.position
            != np.where(root, 0, forest.position[behind] + 1),
            "position is not the number of tokens before it on its path": forest.position != _depths(forest),
            "sampled without a prefix": forest.sampled & root,
            "sampled without a behaviour log-probability": missing,
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
