"""Potential-based shaping: turns are paid for how they change a scorer's view of the state.

Axes: L paths, D depths. Note ``potential``, at a turn's node: the scorer's value after the turn and what it brought
back, such as the log-likelihood of the golden answer, a success probability, or the evidence found so far. What it said
before the first turn stands at the root, 0 where nothing wrote it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.credit import algebra, steps
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.group import among
from rlsearch.credit.registry import estimator
from rlsearch.credit.turn import turn_discount
from rlsearch.tree import paths as layouts


@estimator("potential", notes=["potential"])
def potential_shaping(
    episodes: Episodes, *, coefficient: float, discount: float, watermark: bool, to_go: bool, relative: bool,
    outcome: bool, scale: bool,
) -> Advantages:  # fmt: skip
    """``A_{i,t} = coefficient F_t + A_i``, ``F_t = discount phi_t - phi_{t-1}`` over the policy's turns.

    The common core of TIPS (arXiv 2603.22293), PiCA (2605.09287), SIOP (2605.04984), MRT (2503.07572), StepSearch
    (2505.15107) and MIG (2602.01034), after Ng, Harada and Russell (1999). With discount 1 the F of a path sum to its
    last potential less its first.

    Args:
      episodes: the batch.
      coefficient: what shaping weighs against the outcome.
      discount: of potentials, and with ``to_go`` of later shaping; by turns, observations consume none.
      watermark: MIG: ``F_t = max(discount phi_t - max_{s < t} phi_s, 0)``, the gain beyond all that was reached before.
      to_go: a turn has ``G_t = F_t + discount G_{t+1}`` instead of its own F.
      relative: shaping is relative to all turns of the question (by its deviation under ``scale``); without, as it is.
      outcome: GRPO's advantage of the reward is added; without, potentials are all there is (SIOP has no labels).
      scale: what is relative is divided by its deviation.
    """
    shaping, size = _shaping(episodes, discount, watermark=watermark)
    if to_go:
        rate = turn_discount(episodes, discount)
        shaping, size = layouts.to_go(shaping, rate), layouts.to_go(size, rate)
    if relative:
        shaping, varies = steps.among_turns(episodes, shaping, size.max(axis=1), episodes.by_question, scale=scale)
    else:
        shaping = steps.settled(shaping, size)
        varies = (episodes.acts & (shaping != 0)).any(axis=1)
    if not outcome:
        return algebra.advantages(episodes, coefficient * shaping, varies)
    group, differs = among(episodes, episodes.by_question, scale=scale)
    return algebra.advantages(episodes, episodes.everywhere(group) + coefficient * shaping, varies | differs)


def _shaping(
    episodes: Episodes, discount: float, *, watermark: bool
) -> tuple[Float[Array, "L D"], Float[Array, "L D"]]:
    """The change of the potential at each of the policy's turns, 0 elsewhere, and the size of what it is made of."""
    phi = episodes.along(episodes.note("potential"))
    depth = jnp.arange(phi.shape[1])[None, :]
    said = episodes.acts | (depth == 0)  # the scorer speaks at turns and of the start
    if watermark:
        before = jax.lax.cummax(jnp.where(said, phi, -jnp.inf), axis=1)
    else:
        newest = jax.lax.cummax(jnp.where(said, depth, 0), axis=1)
        before = jnp.take_along_axis(phi, newest, axis=1)
    before = steps.above(before)
    change = discount * phi - before
    if watermark:
        change = jnp.maximum(change, 0.0)
    size = discount * jnp.abs(phi) + jnp.abs(before)
    return jnp.where(episodes.acts, steps.settled(change, size), 0.0), jnp.where(episodes.acts, size, 0.0)
