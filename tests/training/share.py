"""One process of several that hold a share of a batch each: ``python -m tests.training.share OUT COORDINATOR N I``.

Writes the loss and the gradient of the step on the batch of all to OUT.
"""

from __future__ import annotations

import sys

import jax
import numpy as np

from rlsearch.models import sharding
from rlsearch.models.sharding import MeshConfig
from rlsearch.training.collect import Batch
from rlsearch.training.gather import global_batch
from rlsearch.training.state import fresh
from rlsearch.tree.build import build
from tests.models import small
from tests.training import steps
from tests.tree.random_forests import TERMS, random_trees

QUESTIONS = 4
SHAPE = {"width": 40, "targets": 30}


def trees():
    """Trees of four questions; the shares differ in size."""
    return random_trees(5, trees=9, depth=3, branching=3, longest=3, questions=QUESTIONS)


def batch(share: int, shares: int) -> Batch:
    """The trees of a share of the questions, which are numbered from 0 in each share."""
    count = QUESTIONS // shares
    own = [(question % count, root) for question, root in trees() if question // count == share]
    forest = build(own, terms=TERMS)
    rows, used, nodes = steps.batch(forest, block=2 // shares, **SHAPE)
    return Batch(rows, used, nodes, forest, [], ("?",) * count, {})


def loss_and_gradient(mesh, share: int, shares: int):
    step = steps.config("grpo", "token", drop_equal=False)
    rows, blocks, nodes = global_batch(batch(share, shares), mesh)
    params, reference = small.parameters(step.model), small.parameters(step.model, seed=7)
    state = fresh(params, steps.GRADIENT, mesh)
    reference = jax.device_put(reference, sharding.shard(reference, mesh))
    state, metrics, _ = steps.compiled(step, steps.GRADIENT, mesh)(state, reference, rows, blocks, nodes, None)
    return float(metrics["loss"]), jax.tree.map(np.asarray, sharding.to_local(state.opt_state, mesh))


def main(out: str, coordinator: str, shares: int, share: int) -> None:
    jax.distributed.initialize(coordinator, num_processes=shares, process_id=share)
    loss, gradient = loss_and_gradient(sharding.make_mesh(MeshConfig(-1, 1, 1, 1)), share, shares)
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(gradient)[0]}
    np.savez(f"{out}/{share}.npz", loss=loss, **leaves)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
