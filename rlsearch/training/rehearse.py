"""Traces credit and loss once on shapes, so that what they refuse is refused before anything is built."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from rlsearch.credit.algebra import Episodes
from rlsearch.credit.estimate import estimate
from rlsearch.credit.registry import CreditConfig
from rlsearch.credit.slots import Slots
from rlsearch.losses import policy, targets
from rlsearch.losses.policy import LossConfig
from rlsearch.losses.targets import Given
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind


def rehearse(credit: CreditConfig, loss: LossConfig, *, weights: tuple[float, ...], notes: Sequence[str]) -> None:
    """Traces what a step does to two episodes of one question; computes nothing.

    Raises:
      InputError: an option that an estimator or a term refuses, a note that it reads and that nothing writes, or a pair
        of them that contradicts itself.
    """
    answers = [Branch(Kind.ANSWER, 0, [1], [0.0], episode=i, rewards=[0.0] * len(weights)) for i in range(2)]
    nodes = build([(0, Branch(Kind.PROMPT, 0, [0], children=answers))], terms=len(weights), notes=notes).nodes
    node, number = np.array([[[1, 2]]], np.int32), np.zeros((1, 1, 2), np.float32)

    def step(nodes, number):
        critic = number if credit.chosen.critic or loss.critic else None
        reference = number if loss.reference else None
        slots = Slots(node, node >= 0, critic, policy.penalty(loss, node >= 0, number, reference))
        found = estimate(nodes, credit, weights=weights, reduction=loss.reduction, slots=slots)
        batch = targets.Batch(Episodes(nodes, weights, slots, None), found)
        tracks = (found.advantage.affine, found.returns and found.returns.affine)
        given = Given(node, node >= 0, number, number, reference, critic, *tracks)
        made = targets.make(batch, given, logp=number, entropy=number, value=critic)
        return policy.objective(loss, made, batch)

    jax.eval_shape(step, nodes, number)
