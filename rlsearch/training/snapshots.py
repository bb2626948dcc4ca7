"""Rollouts of a step as JSON for the report: every token with its log-probability and advantage."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from rlsearch.rewards.reward import Reward
from rlsearch.tokenization.types import Tokenizer
from rlsearch.training.collect import Batch
from rlsearch.tree.build import Branch
from rlsearch.tree.forest import NONE, Kind

NAMES = {
    Kind.PROMPT: "prompt",
    Kind.QUERY: "search",
    Kind.ANSWER: "answer",
    Kind.INVALID: "other",
    Kind.STEP: "other",
    Kind.OBSERVATION: "information",
}


def snapshot(
    batch: Batch, advantage: Float[np.ndarray, "N"], *, tokenizer: Tokenizer, reward: Reward, step: int, trees: int
) -> dict[str, Any]:
    """``trees`` trees of a batch, those that carry a signal first, with the mean ``advantage`` of each node.

    Groups without a signal were left out of the forest: their tokens have advantage 0.
    """
    in_forest = set(batch.forest.nodes.question.tolist())
    first, count = {}, 0
    for number, (question, root) in enumerate(batch.roots):
        first[number] = count if question in in_forest else None
        count += _size(root) if question in in_forest else 0
    chosen = sorted(range(len(batch.roots)), key=lambda number: first[number] is None)[:trees]
    shown = []
    for number in chosen:
        rows: list[dict[str, Any]] = []
        asked, root = batch.roots[number]
        _add(rows, root, NONE, first[number], advantage, tokenizer, reward)
        question = batch.questions[asked]
        shown.append({"question": question.text, "answers": list(question.answers), "nodes": rows})
    return {"step": step, "trees": shown}


def _size(branch: Branch) -> int:
    return 1 + sum(map(_size, branch.children))


def _add(rows, branch: Branch, parent: int, index: int | None, advantage, tokenizer, reward: Reward) -> int:
    """Adds a branch and what is below it; returns how many nodes that was."""
    here, count = len(rows), 1
    sampled = branch.logps is not None
    worth = float(advantage[index]) if index is not None else 0.0
    logps = branch.logps if sampled else [None] * len(branch.tokens)
    tokens = [
        {"text": tokenizer.decode([token]), "sampled": sampled, "logp": logp, "advantage": worth if sampled else None}
        for token, logp in zip(branch.tokens, logps, strict=True)
    ]
    leaf = branch.episode != NONE
    total = float(np.dot(branch.rewards, reward.weights)) if leaf else None
    rows.append(
        {
            "parent": parent,
            "kind": NAMES[branch.kind],
            "text": tokenizer.decode(branch.tokens),
            "tokens": tokens,
            "reward": None if total is None or np.isnan(total) else total,
            "searches": branch.turn + (branch.kind is Kind.QUERY),
        }
    )
    for child in branch.children:
        below = None if index is None else index + count
        count += _add(rows, child, here, below, advantage, tokenizer, reward)
    return count
