"""The twin of every estimator, a file a family; importing this registers them all."""

from tests.credit.twins import batch, critic, group, potential, redistribute, route, strata, tree, turn, vector  # noqa: F401
