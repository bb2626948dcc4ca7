"""One process of two that score a question's trees each: ``python -m tests.training.score_share OUT COORDINATOR I``.

Writes what its scorer says to OUT.
"""

from __future__ import annotations

import itertools
import sys

import jax
import numpy as np

from rlsearch.models import sharding
from rlsearch.models.sharding import MeshConfig
from rlsearch.training.scorer import RowConfig
from tests.training import test_scorer
from tests.training.test_exactness import BUSHY


def potentials(mesh, question: int, *, block: int) -> list[float]:
    """What the scorer says of the trees of a question, numbered from 0 as in a process of its own."""
    trees, questions = test_scorer.grown(**BUSHY)
    own = [tree for tree in trees if tree.question == question]
    for tree in own:
        tree.question = 0
    made = test_scorer.scorer(rows=RowConfig(tokens=24, targets=9, block=block, blocks=1))
    found = test_scorer.found_by(made, own, questions[question : question + 1], mesh)
    return list(itertools.chain(*found))


def main(out: str, coordinator: str, process: int) -> None:
    jax.distributed.initialize(coordinator, num_processes=2, process_id=process)
    np.save(f"{out}/{process}.npy", potentials(sharding.make_mesh(MeshConfig(-1, 1, 1, 1)), process, block=1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
