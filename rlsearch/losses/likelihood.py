"""Terms that hold the likelihood of episodes up. Axes as in ``losses.targets``."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlsearch.errors import InputError, nearest
from rlsearch.losses import sequence
from rlsearch.losses.level import LEVELS
from rlsearch.losses.targets import Batch, Targets
from rlsearch.losses.terms import term
from rlsearch.tree.forest import Kind

GATES = ("sequence", "turn", "node", "token")
PRESERVED = ("all", "good")


@term(whole=True)
def llds(
    targets: Targets, batch: Batch, *, coefficient: float, gate: str, preserve: str, answers: float
) -> Float[Array, ""]:
    """``coefficient sum_t w_t 1[sum_{s in gate(t)} log pi(s) - log pi_old(s) < 0] max(0, log pi_old(t) - log pi(t))``.

    Likelihood-preserving regularisation LLDS (arXiv 2512.04220, with its release): where a response has become less
    likely than before the update, the tokens that became so are held up; the others are left alone.

    ``gate`` says over what the likelihood must have dropped: "sequence" is the paper's response (all contexts of the
    episode), "turn" its action, "node" what is shared with siblings, "token" is LLD, without a gate. ``preserve`` says
    for which pairs of token and episode: "good" for those of advantage 0 or more, as in the release, or "all". A
    token of an answer counts ``answers`` times; 0 is LLDS-MA, which leaves answers out.

    The weights are the reduction's; "token" is the release's mean over all tokens. The gate sums over all tokens that
    count, of whichever advantage: where an episode has one advantage, as in GRPO, this is the release's. A token as
    likely as before has no gradient.
    """
    if gate not in GATES:
        raise InputError(f"loss term llds: gate {gate!r}: unknown{nearest(gate, GATES)}")
    if preserve not in PRESERVED:
        raise InputError(f"loss term llds: preserve {preserve!r}: unknown{nearest(preserve, PRESERVED)}")
    drop = targets.old_logp - targets.logp
    held = LEVELS[gate].function(targets, batch) < 0
    if preserve == "good":
        held = held & (targets.advantage >= 0)
    answer = jnp.asarray(batch.episodes.nodes.kind)[targets.node] == Kind.ANSWER
    penalty = jnp.where(drop > 0, drop, 0.0) * jnp.where(answer, answers, 1.0)
    return coefficient * (targets.weight * jnp.where(held, penalty[..., None], 0.0)).sum()


@term()
def sft(targets: Targets, batch: Batch, *, coefficient: float, note: str | None, above: float) -> Float[Array, ""]:
    """``-coefficient mean log pi(t)`` over the tokens of chosen episodes, weighed as the reduction weighs them.

    Chosen are the episodes whose ``note`` is greater than ``above`` ("expert" above 0, say), and where it is None those
    whose outcome is. The weights are made to sum to one over them, so that the term does not grow with their number.
    It is maximum likelihood, beside reinforcement learning or, with the clip None, on its own; each of these episodes
    must take part, so with ``credit.drop_equal`` those of questions without a signal are left out.
    """
    value = batch.episodes.outcome if note is None else sequence.noted(batch, note)
    ones = jnp.ones_like(value)
    return -coefficient * sequence.weighted_mean(targets.logp[..., None], ones, value > above, targets, batch)
