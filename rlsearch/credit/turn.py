"""Estimators that read what each turn of an episode earned.

Axes: L paths, D depths. Note ``step_reward``, at the turn's node: what the turn earned; what stands at nodes without
sampled tokens is not read. Returns are discounted by turns of the policy, so an observation consumes no discount, and
the outcome comes with the last turn. A context of an episode is a path with its own returns.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlsearch.credit import algebra, steps
from rlsearch.credit.algebra import Advantages, Episodes
from rlsearch.credit.group import among
from rlsearch.credit.registry import estimator
from rlsearch.errors import InputError
from rlsearch.tree import paths as layouts
from rlsearch.tree import segments
from rlsearch.tree.forest import Kind


@estimator("turn", notes=["step_reward"])
def step_return(episodes: Episodes, *, discount: float, scale: bool) -> Advantages:
    """``A_t = (G_t - mean(G)) / std(G)`` over all turns of the question, ``G_t = r_t + discount G_{t+1}``.

    The outcome is added to the reward of the last turn. Step-level returns with the group for a critic, after process
    supervision of DeepSeekMath, arXiv 2402.03300, section 4.1.3, whose baseline also pools the steps of all episodes.
    """
    value, size = _returns(episodes, discount)
    result, varies = steps.among_turns(episodes, value, size, episodes.by_question, scale=scale)
    return algebra.advantages(episodes, result, varies)


@estimator("turn", notes=["step_reward"])
def turn_return(episodes: Episodes, *, discount: float, scale: bool) -> Advantages:
    """``step_return`` whose baseline is that of the same turn: its mean and deviation over the question's episodes.

    A turn that one episode alone reached has nothing to compare with: 0.
    """
    value, size = _returns(episodes, discount)
    result, varies = steps.among_turns(episodes, value, size, steps.turns_of_question(episodes), scale=scale)
    return algebra.advantages(episodes, result, varies)


@estimator("turn", notes=["step_reward"])
def turn_relative(episodes: Episodes, *, discount: float) -> Advantages:
    """``A_k = sum_{j >= k} discount^(j - k) (R_j - mean of the other R_j)`` at every turn of attempt k.

    MR-Search, arXiv 2603.11327: a path is a meta-episode, a sequence of attempts with reflections between them, each
    ending in an answer. R_j is what attempt j earned: the rewards of its steps, and for the last one the outcome. It is
    compared with attempt j of the question's other paths (leave-one-out, not scaled), then discounted by attempts.
    A reflection belongs to the attempt that it opens. An attempt that one path alone has made adds 0.
    """
    acts = episodes.acts & episodes.scored[:, None]
    answers = episodes.along(jnp.asarray(episodes.nodes.kind) == Kind.ANSWER) & acts
    attempt = layouts.before(answers.astype(jnp.int32))
    last = answers | steps.last_act(episodes)
    earned, depth = jnp.where(acts, _rewards(episodes), 0.0), acts.shape[1]
    own = replace(episodes.by_question, column=attempt, columns=depth)
    total, size, made = (own.fold(x, 0.0) for x in (earned, jnp.abs(earned), (last & acts).astype(earned.dtype)))
    use, group = made > 0, replace(episodes.by_question, columns=depth)
    centred, varies = steps.relative(total, size, use, group, scale=False)
    count = segments.total(made, use, group)
    centred = centred * count / jnp.maximum(count - 1, 1)  # against the others instead of all
    here = jnp.where(last & acts, own.unfold(centred, acts.shape), 0.0)
    varies = (varies & use).any(axis=1)
    return algebra.advantages(episodes, layouts.to_go(here, jnp.where(last, discount, 1.0)), varies)


@estimator("turn", notes=["step_reward"])
def turn_centred(episodes: Episodes, *, coefficient: float, over: str, scale: bool) -> Advantages:
    """``A_{i,t} = A_i + coefficient (r_{i,t} - mean(r))``: the outcome's advantage plus centred turn credit.

    CTC-GRPO of EIBench, arXiv 2606.15532, where ``step_reward`` is how a turn changed the user's state. ``A_i`` is
    GRPO's (by its deviation under ``scale``). What credit is centred over was not to be found, so there is a choice:
    ``over="episode"`` leaves the sum along an episode as the outcome says; ``over="turn"`` is among the question's
    episodes at the same turn.
    """
    outcome, varies = among(episodes, episodes.by_question, scale=scale)
    change = _step_rewards(episodes)
    if over == "episode":
        group = episodes.by_episode
    elif over == "turn":
        group = steps.turns_of_question(episodes)
    else:
        raise InputError(f"turn_centred: over={over!r} is neither 'episode' nor 'turn'")
    centred, moves = steps.among_turns(episodes, change, jnp.abs(change).max(axis=1), group, scale=False)
    return algebra.advantages(episodes, episodes.everywhere(outcome) + coefficient * centred, varies | moves)


@estimator("turn", notes=["step_reward"])
def process_outcome(episodes: Episodes, *, coefficient: float, to_go: bool, scale: bool) -> Advantages:
    """``A_{i,t} = A_i + coefficient (r_{i,t} - mean(r)) / std(r)``: outcome plus process advantage.

    ProRAG, arXiv 2601.21912: ``step_reward`` is a process reward model's score of the turn, relative to all turns of
    the question's episodes; ``A_i`` is GRPO's. ``scale`` divides both by their deviations. With ``to_go`` a turn has
    the sum of the process advantages from it on (DeepSeekMath, arXiv 2402.03300, section 4.1.3), without it its own.
    """
    outcome, varies = among(episodes, episodes.by_question, scale=scale)
    earned = _step_rewards(episodes)
    process, differs = steps.among_turns(
        episodes, earned, jnp.abs(earned).max(axis=1), episodes.by_question, scale=scale
    )
    process = jnp.where(episodes.acts, process, 0.0)
    if to_go:
        process = layouts.to_go(process)
    return algebra.advantages(episodes, episodes.everywhere(outcome) + coefficient * process, varies | differs)


def _step_rewards(episodes: Episodes) -> Float[Array, "L D"]:
    return jnp.where(episodes.acts, episodes.along(episodes.note("step_reward")), 0.0)


def _rewards(episodes: Episodes) -> Float[Array, "L D"]:
    """What each turn earned, the outcome with the last one."""
    return _step_rewards(episodes) + jnp.where(steps.last_act(episodes), episodes.reward[:, None], 0.0)


def _returns(episodes: Episodes, discount: float) -> tuple[Float[Array, "L D"], Float[Array, "L"]]:
    """Discounted returns from each turn on, and the size of what a path's are sums of."""
    earned = _rewards(episodes)
    return layouts.to_go(earned, turn_discount(episodes, discount)), jnp.abs(earned).sum(axis=1)


def turn_discount(episodes: Episodes, discount: float) -> Float[Array, "L D"]:
    """``discount`` at the policy's turns, 1 at all other nodes."""
    acts: Bool[Array, "L D"] = episodes.acts
    return jnp.where(acts, discount, 1.0)
