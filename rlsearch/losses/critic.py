"""What trains a critic: how far its values are from the returns that credit found.

Axes: ... any shape of targets, K paths through a target's node. A token that several episodes share has a return from
each; all of them pull at its one value, each with its own weight.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.errors import InputError
from rlsearch.losses.targets import Batch, Targets
from rlsearch.losses.terms import term


@term(critic=True)
def value(targets: Targets, batch: Batch, *, coefficient: float, clip: float | None) -> Float[Array, ""]:
    """``coefficient w max((V - G)^2, (V_clip - G)^2) / 2``, ``V_clip = clip(V, V_old - clip, V_old + clip)``, summed.

    The value loss of PPO (arXiv 1707.06347) with the clip of its implementations, which the paper does not have: once a
    value has moved by ``clip`` towards its return, nothing pulls it on. G is the return and w the weight that the
    reduction gives each pair of token and episode. With ``clip`` None it is half the weighted squared error.
    """
    if clip is not None and clip <= 0:
        raise InputError(f"loss term value: clip {clip} must be above 0, or None for none")
    if targets.returns is None:
        raise InputError("loss term value: this credit says no returns that a critic could learn")
    error = jnp.square(targets.value[..., None] - targets.returns)
    if clip is not None:
        held = jnp.clip(targets.value, targets.old_value - clip, targets.old_value + clip)
        error = jnp.maximum(error, jnp.square(held[..., None] - targets.returns))
    return 0.5 * coefficient * (targets.weight * error).sum()
