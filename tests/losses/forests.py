"""Targets of whole forests without a model: what stands for its scores is given by token."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np

from rlsearch.config import Call
from rlsearch.credit.algebra import Episodes
from rlsearch.credit.estimate import estimate
from rlsearch.credit.registry import CreditConfig
from rlsearch.losses import targets
from rlsearch.losses.targets import Batch, Given, Targets
from rlsearch.tree.forest import Forest
from rlsearch.tree.pack import pack, pad_nodes

SIZE = {"leaves": 128, "depth": 4, "fan": 32}
NODES = 128


def targets_of(
    forest: Forest, credit: CreditConfig, reduction: Call, columns: Mapping[str, np.ndarray], *,
    weights: tuple[float, ...], shape: Mapping[str, int] | None = None,
) -> tuple[Targets, Batch]:  # fmt: skip
    """The targets of a forest and the batch they belong to.

    Args:
      forest: whose sampled tokens they are.
      credit: which estimator.
      reduction: which reduction.
      columns: of every token of the forest: logp, entropy, old_logp and reference_logp.
      weights: of the reward columns.
      shape: rows to pack into; without it all targets stand in one line, in the order of the forest.
    """
    nodes = pad_nodes(forest.nodes, NODES, **SIZE)
    batch = Batch(Episodes(nodes, weights, None, None), _credit(nodes, credit, weights, reduction))
    columns = {**columns, "behavior_logp": forest.behavior_logp}
    if shape is None:
        index = np.flatnonzero(forest.sampled)
        found = {name: column[index].astype(np.float32) for name, column in columns.items()}
        node, use = forest.token_node[index], np.ones(len(index), bool)
    else:
        rows = pack(forest, **shape).rows
        node, use = rows.target_node, rows.target >= 0
        found = {name: packed(forest, column, shape) for name, column in columns.items()}
    given = Given(node, use, found["behavior_logp"], found["old_logp"], found["reference_logp"], None, None, None)
    return targets.make(batch, given, logp=found["logp"], entropy=found["entropy"], value=None), batch


def packed(forest: Forest, column: np.ndarray, shape: Mapping[str, int]) -> np.ndarray:
    """A column of tokens where packing puts their log-probabilities."""
    return pack(replace(forest, behavior_logp=column.astype(np.float32)), **shape).rows.behavior_logp


@functools.partial(jax.jit, static_argnames=("credit", "weights", "reduction"))
def _credit(nodes, credit: CreditConfig, weights: tuple[float, ...], reduction: Call):
    return estimate(nodes, credit, weights=weights, reduction=reduction)
