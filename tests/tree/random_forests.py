"""Random forests: questions interleaved, empty nodes, unsampled turns, rewards that tie or cannot be scored."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from rlsearch.models import attention
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import NONE, Forest, Kind

VOCABULARY = 29
TERMS = 2
REWARDS = (0.0, 0.25, 1.0, float("nan"))


def random_trees(
    seed: int, *, trees: int, depth: int, branching: int, longest: int, questions: int = 2, contexts: float = 0.0
) -> list[tuple[int, Branch]]:
    """Trees with at most ``depth`` nodes below a root, ``branching`` children and ``longest`` tokens a node.

    ``contexts`` is the share of leaves that continue an episode of another leaf of the question.
    """
    rng, episodes = np.random.default_rng(seed), itertools.count()

    def branch(level: int) -> Branch:
        kind = Kind(rng.choice(list(Kind)[1:])) if level else Kind.PROMPT
        tokens = rng.integers(VOCABULARY, size=rng.integers(0 if level else 1, longest + 1)).tolist()
        sampled = level > 0 and kind != Kind.OBSERVATION
        # Near a uniform policy over the vocabulary, so that ratios lie on both sides of a clip.
        logps = (-abs(rng.normal(3.4, 0.4, size=len(tokens)))).tolist() if sampled else None
        count = int(rng.integers(0 if level else 1, branching + 1)) if level < depth else 0
        children = [branch(level + 1) for _ in range(count)]
        end = {} if children else {"episode": next(episodes), "rewards": rng.choice(REWARDS, size=TERMS).tolist()}
        return Branch(kind, level, tokens, logps, children, **end)

    grown = [(int(rng.integers(questions)), branch(0)) for _ in range(trees)]
    if contexts:
        in_contexts(grown, rng, contexts)
    return grown


def in_contexts(trees: list[tuple[int, Branch]], rng: np.random.Generator, share: float) -> None:
    """Makes ``share`` of the leaves further contexts of an episode that ended in an earlier leaf, in any tree of the
    question: they have its id and its rewards.
    """
    for question in {question for question, _ in trees}:
        ends = [leaf for other, root in trees if other == question for leaf in leaves_of(root)]
        for place, leaf in enumerate(ends[1:], start=1):
            if rng.random() < share:
                first = ends[rng.integers(place)]
                leaf.episode, leaf.rewards = first.episode, first.rewards


def leaves_of(branch: Branch) -> list[Branch]:
    """The leaves at or below a branch, in depth-first order."""
    return [leaf for child in branch.children for leaf in leaves_of(child)] if branch.children else [branch]


def apart(trees: list[tuple[int, Branch]]) -> list[tuple[int, Branch]]:
    """The same episodes with nothing shared: a chain for each path."""

    def chains(branch: Branch) -> list[Branch]:
        below = [[rest] for child in branch.children for rest in chains(child)] or [[]]
        return [replace(branch, children=rest) for rest in below]

    return [(question, chain) for question, root in trees for chain in chains(root)]


def random_forest(seed: int, **sizes: float) -> Forest:
    return build(random_trees(seed, **sizes), terms=TERMS)


def sizes(*, contexts: bool = False) -> dict[str, st.SearchStrategy]:
    """What ``random_forest`` takes; shrinks towards few, small and shallow trees.

    With ``contexts`` an episode may end in several leaves.
    """
    return {
        "seed": st.integers(0, 2**32 - 1),
        "trees": st.integers(1, 4),
        "depth": st.integers(0, 4),
        "branching": st.integers(1, 3),
        "longest": st.integers(1, 5),
    } | ({"contexts": st.sampled_from([0.0, 0.4])} if contexts else {})


def forests(*, contexts: bool = False) -> st.SearchStrategy[Forest]:
    return st.builds(random_forest, **sizes(contexts=contexts))


def trees(*, contexts: bool = False) -> st.SearchStrategy[list[tuple[int, Branch]]]:
    return st.builds(random_trees, **sizes(contexts=contexts))


def ancestors(parent: np.ndarray, index: int) -> list[int]:
    """A node or token and all before it on its path, by following ``parent`` or ``prev`` one at a time."""
    path = []
    while index != NONE:
        path.append(int(index))
        index = parent[index]
    return path


def visible(token_end: np.ndarray) -> np.ndarray:
    """The mask of attention, [B, W, W]; computed at a few shapes only, so that few compilations serve all examples."""
    rows, width = token_end.shape
    shape = [1 << (size - 1).bit_length() for size in (rows, width)]
    whole = np.broadcast_to(np.arange(1, shape[1] + 1), shape).copy()
    whole[:rows, :width] = token_end
    return np.asarray(attention.visible(whole))[:rows, :width, :width]
