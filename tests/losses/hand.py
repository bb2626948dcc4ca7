"""Small forests whose tokens' log-probabilities are written down, for terms worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
from ml_collections import ConfigDict

from rlsearch.config import Call
from rlsearch.credit import registry
from rlsearch.losses.policy import TERMS
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.losses.targets import Batch, Targets
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind
from tests.losses.forests import targets_of

KEPT = registry.read(ConfigDict({"estimator": "grpo", "scale": False, "drop_equal": False}))
DROPPED = registry.read(ConfigDict({"estimator": "grpo", "scale": False, "drop_equal": True}))


def node(tokens: int, *children: Branch, turn: int = 0, kind: Kind = Kind.QUERY) -> Branch:
    """A turn of the policy that goes on."""
    return Branch(kind, turn, [3] * tokens, [-1.0] * tokens, list(children))


def end(tokens: int, reward: float, episode: int, *, turn: int = 1, **notes: float) -> Branch:
    """The answer in which an episode, or one of its contexts, ends."""
    logps = [-1.0] * tokens
    return Branch(Kind.ANSWER, turn, [4] * tokens, logps, episode=episode, rewards=[reward], notes=notes)


def made(
    *questions: Sequence[Branch], logp: Sequence[float], old: Sequence[float] | None = None,
    reference: Sequence[float] | None = None, behaviour: Sequence[float] | None = None, credit=KEPT,
    reduction: str = "token",
) -> tuple[Targets, Batch]:  # fmt: skip
    """What a term is computed on; columns are of the sampled tokens, depth first. What is not given is ``logp``.

    Each question is the list of branches that begin after its prompt.
    """
    roots = [(q, Branch(Kind.PROMPT, 0, [1, 2], None, list(branches))) for q, branches in enumerate(questions)]
    forest = build(roots, terms=1)
    where = np.flatnonzero(forest.sampled)

    def column(values: Sequence[float] | None) -> np.ndarray:
        found = np.zeros(len(forest.token_id), np.float32)
        found[where] = logp if values is None else values
        return found

    columns = {"logp": column(logp), "old_logp": column(old), "reference_logp": column(reference)}
    forest = replace(forest, behavior_logp=column(behaviour))
    call = Call(reduction, REDUCTIONS[reduction], ())
    return targets_of(forest, credit, call, {**columns, "entropy": column([0.0] * len(where))}, weights=(1.0,))


def value_and_slope(name: str, given: tuple[Targets, Batch], **options) -> tuple[float, list[float]]:
    """A term of coefficient 1, and its gradient by the log-probability of each token."""
    targets, batch = given

    def of(logp):
        return TERMS[name].function(replace(targets, logp=logp), batch, coefficient=1.0, **options)

    value, slope = jax.value_and_grad(of)(targets.logp)
    return float(value), np.asarray(slope).tolist()
