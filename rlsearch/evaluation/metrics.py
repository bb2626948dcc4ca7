"""From finished episodes to one evaluation record, the line that ``evaluations.jsonl`` holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlsearch.envs.types import State, Status
from rlsearch.rewards import answers
from rlsearch.rewards.reward import TERMS

_MEANS = ("exact_match", "f1", "cover_match", "searches", "recall", "answered", "valid")


def record(states: Sequence[State], *, stage: str, step: int, name: str) -> dict[str, Any]:
    """Scores the episodes of one evaluation, one episode a question.

    Exact match, F1 and cover match stand side by side, with the number of questions and the normalisation's name,
    because tables that give one of them alone cannot be compared.

    Args:
      states: finished episodes.
      stage: "warmup" or "rl".
      step: the update after which the policy was evaluated.
      name: the question set, such as "heldout".

    Returns:
      ``stage``, ``step``, ``name``, ``normaliser``; ``questions`` (their number) and means over them: ``exact_match``,
      ``f1``, ``cover_match``, ``searches`` (answered ones an episode), ``recall`` (of supporting passages, over the
      ``recall_questions`` for which they are known), ``answered`` (share with a final answer), ``valid`` (share of
      turns with a valid action); ``by_hops``: the same means by number of hops as text, "0" where unknown.
      A mean over no question is None, never NaN, so that the record is JSON.

    Raises:
      ValueError: no episode, an unfinished one, or a question twice.
    """
    if not states:
        raise ValueError(f"evaluation {name!r}: no episode to score")
    unfinished = [state.question.id for state in states if state.status is not Status.DONE]
    if unfinished:
        raise ValueError(f"evaluation {name!r}: {len(unfinished)} episodes are not done, the first is {unfinished[0]}")
    ids = [state.question.id for state in states]
    if len(set(ids)) < len(ids):
        twice = next(identity for identity in ids if ids.count(identity) > 1)
        raise ValueError(
            f"evaluation {name!r}: question {twice} occurs twice; an evaluation has one episode a question"
        )
    hops = sorted({state.question.hops for state in states})
    by_hops = {str(hop): _means([state for state in states if state.question.hops == hop]) for hop in hops}
    head = {"stage": stage, "step": step, "name": name, "normaliser": answers.NORMALISER}
    return {**head, **_means(states), "by_hops": by_hops}


def _means(states: Sequence[State]) -> dict[str, Any]:
    known = sum(bool(state.question.supporting_ids) for state in states)
    means = {term: _mean(map(TERMS[term], states)) for term in _MEANS}
    return {"questions": len(states), **means, "recall_questions": known}


def _mean(values: Iterable[float]) -> float | None:
    """The mean of the values that are not NaN; None where there is none."""
    scored = [value for value in values if not math.isnan(value)]
    return float(np.mean(scored)) if scored else None
