"""Rows of all processes as one batch over the mesh, and back."""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from rlsearch.models import sharding
from rlsearch.tree.forest import Rows


def global_rows(rows: Rows, used: int, mesh: Mesh) -> tuple[Rows, int]:
    """Rows [M, R, ...] of all processes over the mesh and the blocks in use, after the processes agree on M."""
    if jax.process_count() == 1:
        return sharding.to_global(rows, mesh), used
    sizes = multihost_utils.process_allgather(np.array([used, len(rows.token_id)]))
    blocks, shape = sizes.max(axis=0).tolist()
    return sharding.to_global(jax.tree.map(lambda leaf: stretch(leaf, shape), rows), mesh), blocks


def own_rows(array: jax.Array, mesh: Mesh) -> np.ndarray:
    """This process's share [M, R, ...] of what was computed for the rows of all, laid out as they are."""
    if jax.process_count() > 1:
        array = multihost_utils.global_array_to_host_local_array(array, mesh, P(None, *sharding.ROWS))
    return np.asarray(array)


def stretch(leaf: np.ndarray, count: int) -> np.ndarray:
    """A leaf of ``count`` blocks, those that are missing being the last one again."""
    return np.concatenate([leaf, np.repeat(leaf[-1:], count - len(leaf), axis=0)])
