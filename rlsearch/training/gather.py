"""From the batches of all processes to one: rows laid over the mesh, and one node table."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from rlsearch.models import sharding
from rlsearch.training.collect import Batch
from rlsearch.training.laid_rows import stretch
from rlsearch.tree.forest import Nodes, Rows, with_paths
from rlsearch.tree.pack import pad_nodes


def global_batch(batch: Batch, mesh: Mesh) -> tuple[Rows, int, Nodes]:
    """Rows [M, R, ...] over the mesh, blocks in use, and the node table of all processes one after another.

    Processes agree on the largest shapes among them first, since each must run the same program. Node and question
    indices of process p are moved behind those of the processes before it.
    """
    count, rank = jax.process_count(), jax.process_index()
    used = batch.blocks if len(batch.forest.token_id) else 0
    if count == 1:
        return sharding.to_global(batch.rows, mesh), used, batch.nodes
    own = np.array(
        [used, len(batch.rows.token_id), len(batch.nodes.end), *batch.nodes.paths.room.values()]
    )  # fmt: skip
    blocks, shape, nodes, leaves, depth, fan, questions = multihost_utils.process_allgather(own).max(axis=0).tolist()
    rows = jax.tree.map(lambda leaf: stretch(leaf, shape), batch.rows)
    rows = dataclasses.replace(rows, target=_unused(rows.target, used), target_node=rows.target_node + rank * nodes)
    table = pad_nodes(batch.nodes, nodes)
    columns = {name: column for name, column in vars(table).items() if name != "paths"}
    columns["end"] = table.end + rank * nodes
    columns["parent"] = np.where(table.parent < 0, table.parent, table.parent + rank * nodes)
    columns["question"] = table.question + rank * questions
    columns["episode"] = np.where(table.episode < 0, table.episode, table.episode + rank * nodes)
    columns = jax.tree.map(lambda leaf: np.concatenate(multihost_utils.process_allgather(leaf)), columns)
    whole = with_paths(columns, leaves=leaves * count, depth=depth, fan=fan, questions=questions * count)
    return sharding.to_global(rows, mesh), blocks, whole


def _unused(target: np.ndarray, blocks: int) -> np.ndarray:
    """Takes the targets out of the blocks that only another process uses."""
    return np.where(np.arange(len(target))[:, None, None] < blocks, target, -1)
