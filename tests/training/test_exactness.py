"""The law of exactness: a packed forest has the loss and the gradient of its paths, each computed on its own."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.models import small
from tests.training import per_path, steps
from tests.tree.random_forests import random_forest

WHOLE = {"width": 160, "targets": 120, "block": 1}
SPLIT = {"width": 20, "targets": 9, "block": 2}
FORESTS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "trees": st.integers(1, 3),
        "depth": st.integers(1, 3),
        "branching": st.integers(1, 3),
        "longest": st.integers(1, 4),
    }
)
BUSHY = {"seed": 3, "trees": 3, "depth": 3, "branching": 3, "longest": 4}


def models():
    return small.parameters(small.config()), small.parameters(small.config(), seed=7)


@pytest.mark.parametrize("reduction", ["token", "sequence"])
@pytest.mark.parametrize("estimator", ["grpo", "tree_grpo"])
@pytest.mark.parametrize("shape", [SPLIT])
@settings(max_examples=6)
@given(sizes=FORESTS)
@example(sizes=BUSHY)
def test_packed_equals_one_path_at_a_time(estimator, reduction, shape, sizes):
    forest, step = random_forest(**sizes), steps.config(estimator, reduction)
    expected = per_path.loss_and_gradient(*models(), forest, step)
    steps.assert_equal(steps.loss_and_gradient(*models(), forest, step, steps.mesh(), **shape), expected)
