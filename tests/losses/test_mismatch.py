"""Corrections for the sampler by hand."""

from __future__ import annotations

from math import log

import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from rlsearch.losses import mismatch, policy
from tests.losses.test_policy import SECTION, targets

# pi_old / pi_sampler of four tokens.
RATIOS = [0.4, 0.9, 1.5, 6.0]
GAP = jnp.log(jnp.array(RATIOS))


def test_truncated():
    np.testing.assert_allclose(mismatch.truncated(GAP, cap=2.0), [0.4, 0.9, 1.5, 2.0], rtol=1e-5)


def test_masked():
    np.testing.assert_allclose(mismatch.masked(GAP, low=0.5, high=5.0), [0.0, 0.9, 1.5, 0.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("section", "factor"),
    [
        ({"kind": "truncated", "cap": 2.0}, [0.4, 0.9, 1.5, 2.0]),
        ({"kind": "masked", "low": 0.5, "high": 5.0}, [0.0, 0.9, 1.5, 0.0]),
    ],
)
def test_the_surrogate_is_weighed_and_the_ratio_is_to_the_old_policy(section, factor):
    """Ratio 1.1 to the old policy, A = 1, weight 1/4: -1.1 / 4 times the sum of the factors.

    Were the ratio to the sampler, each of these would also be clipped by another amount.
    """
    config = policy.read(ConfigDict({**SECTION, "kl": None, "entropy": 0.0, "mismatch": section}))
    old = [-1.0] * 4
    made = targets(
        logp=[-1.0 + log(1.1)] * 4, old_logp=old, behavior_logp=np.array(old) - np.log(RATIOS), advantage=[1.0] * 4,
        weight=[0.25] * 4,
    )  # fmt: skip
    loss, sums = policy.objective(config, made, None)
    assert float(loss) == pytest.approx(-1.1 / 4 * sum(factor), rel=1e-5)
    assert float(sums["correction"]) == pytest.approx(sum(factor), rel=1e-5)
