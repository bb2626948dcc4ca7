"""Cutting a turn into spans that credit may tell apart: thinking, query, summary, citation, answer.

A span is a node of its own, and nothing else changes: tokens, positions, what each token sees and what was sampled are
those of the whole turn. So are the advantages of estimators that give an episode one value, or a node the value of the
episodes through it. What takes a node for a step sees every span as a step: the difference of a span's value to the
span before it is 0, it is an only child, discounts by turn count it, and the reduction ``node`` shares by spans.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rlsearch.tree.build import Branch
from rlsearch.tree.forest import NONE

Notes = Mapping[str, float]
Cut = tuple[Sequence[int], Sequence[Notes]]


def split(branch: Branch, cuts: Sequence[int], notes: Sequence[Notes]) -> Branch:
    """Consecutive spans in place of a node, the first of which is returned; the branch itself is left as it is.

    Args:
      branch: the node.
      cuts: offsets of the tokens that begin the second span and each later one, increasing, inside the node.
      notes: of each span, one more than cuts. What the node noted stands at its last span, where the turn is complete
        and an episode may end, unless the span's own notes say otherwise.

    Raises:
      ValueError: cuts that leave a span empty or lie outside the node, or notes for another number of spans.
    """
    bounds = [0, *cuts, len(branch.tokens)]
    if cuts and any(b <= a for a, b in itertools.pairwise(bounds)):
        raise ValueError(f"cuts {list(cuts)} do not divide {len(branch.tokens)} tokens into spans that hold some each")
    if len(notes) != len(cuts) + 1:
        raise ValueError(f"{len(notes)} notes for {len(cuts) + 1} spans")
    spans = [
        replace(
            branch,
            tokens=branch.tokens[a:b],
            logps=None if branch.logps is None else branch.logps[a:b],
            notes=dict(own),
            children=[],
            episode=NONE,
            rewards=(),
        )
        for (a, b), own in zip(itertools.pairwise(bounds), notes, strict=True)
    ]
    last = spans[-1]
    last.notes = {**branch.notes, **last.notes}
    last.children, last.episode, last.rewards = list(branch.children), branch.episode, branch.rewards
    for span, below in itertools.pairwise(spans):
        span.children = [below]
    return spans[0]


def split_tree(root: Branch, choose: Callable[[Branch], Cut | None]) -> Branch:
    """The tree with every node split for which ``choose`` gives cuts and notes; the tree itself is left as it is."""
    chosen = choose(root)
    whole = replace(root, children=[split_tree(child, choose) for child in root.children])
    return whole if chosen is None else split(whole, *chosen)
