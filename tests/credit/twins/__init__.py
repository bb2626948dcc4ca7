"""The twin of every estimator, a file a family; importing this registers them all."""

from tests.credit.twins import batch, group, strata, tree, vector  # noqa: F401
