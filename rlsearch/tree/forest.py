"""A forest of token trees, stored flat in depth-first order.

Axes: T tokens, N nodes, R reward terms, B rows of W tokens, S targets of a row.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from rlsearch.tree.paths import NONE, Paths, lay_out

__all__ = ["NONE", "Forest", "Kind", "Nodes", "Rows", "leaves", "with_paths"]


class Kind(enum.IntEnum):
    """What a node's tokens are."""

    PROMPT = 0
    QUERY = 1  # a turn of the policy that ends in a search
    ANSWER = 2  # a turn of the policy that ends in an answer
    INVALID = 3  # a turn of the policy that is no valid action
    OBSERVATION = 4  # what the environment appended
    STEP = 5  # any other turn of the policy: a plan, a choice, a summary


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Nodes:
    """The node table, in pre-order. Descendants of node i, itself included, are exactly ``[i, end[i])``.

    Attributes:
      end: one past the last descendant. A leaf has ``end == index + 1``.
      parent: index of the node above, NONE at a root.
      kind: a ``Kind``.
      turn: turns of the policy before this node on its path.
      question: index of the question, the group of GRPO.
      episode: id of the episode that ends in this leaf, NONE at inner nodes (episodes share those). An episode of
        several contexts ends in several leaves, which carry the same rewards.
      role: whose parameters wrote it.
      version: optimizer steps taken by the policy that sampled it.
      tokens: how many sampled tokens it holds.
      rewards: one column per named term, at leaves; NaN where a term could not be scored, 0 at inner nodes.
      notes: columns by name that a method needs besides (``rewards.notes``): what a step earned, a potential, a fault.
      paths: every path as a row of node indices.
    """

    end: Int[np.ndarray, "N"]
    parent: Int[np.ndarray, "N"]
    kind: Int[np.ndarray, "N"]
    turn: Int[np.ndarray, "N"]
    question: Int[np.ndarray, "N"]
    episode: Int[np.ndarray, "N"]
    role: Int[np.ndarray, "N"]
    version: Int[np.ndarray, "N"]
    tokens: Int[np.ndarray, "N"]
    rewards: Float[np.ndarray, "N R"]
    notes: dict[str, Float[np.ndarray, "N"]]
    paths: Paths


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Forest:
    """Tokens in depth-first order and the table of the nodes they belong to.

    Attributes:
      token_id: vocabulary ids.
      token_node: index of each token's node.
      position: tokens before it on its path (the rotary position).
      prev: index of the token before it on its path, NONE at a root's first token.
      token_end: one past the last token that may see it; query q sees key k iff ``k <= q < token_end[k]``.
      sampled: whether the policy chose it.
      behavior_logp: log-probability under the policy, temperature and masking that chose it; 0 where not sampled.
    """

    token_id: Int[np.ndarray, "T"]
    token_node: Int[np.ndarray, "T"]
    position: Int[np.ndarray, "T"]
    prev: Int[np.ndarray, "T"]
    token_end: Int[np.ndarray, "T"]
    sampled: Bool[np.ndarray, "T"]
    behavior_logp: Float[np.ndarray, "T"]
    nodes: Nodes


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """A forest cut into rows of equal width; the node table stays whole.

    ``target`` lists the sampled tokens of each row by index, NONE behind the last; log-probabilities are computed for
    those alone. ``prev`` and ``token_end`` are indices within the row. Padding has ``token_end == index + 1``.
    """

    token_id: Int[np.ndarray, "B W"]
    position: Int[np.ndarray, "B W"]
    token_end: Int[np.ndarray, "B W"]
    target: Int[np.ndarray, "B S"]
    target_prev: Int[np.ndarray, "B S"]
    target_id: Int[np.ndarray, "B S"]
    target_node: Int[np.ndarray, "B S"]
    behavior_logp: Float[np.ndarray, "B S"]


def leaves(nodes: Nodes) -> Bool[np.ndarray, "N"]:
    """Which nodes end an episode; padded nodes (``episode == NONE``) do not."""
    return nodes.episode != NONE


def with_paths(columns: dict, **room: int) -> Nodes:
    """The table with its paths laid out; ``columns`` are all others. See ``paths.lay_out`` for the sizes."""
    laid = lay_out(columns["end"], columns["parent"], columns["question"], columns["episode"], **room)
    return Nodes(**{**columns, "paths": laid})
