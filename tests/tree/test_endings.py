"""Endings below nodes: where they stand, what is left out, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.tree.build import Branch
from rlsearch.tree.check import check
from rlsearch.tree.endings import Asked, attach
from rlsearch.tree.forest import Kind
from tests.tree import random_forests
from tests.tree.random_forests import ancestors, random_trees


def tree():
    """A prompt, a search and what it found, and two answers, the second after another search."""
    one = Branch(Kind.ANSWER, 1, [5], [-1.0], episode=0, rewards=[1.0])
    two = Branch(Kind.ANSWER, 1, [6, 7], [-1.0, -1.0], episode=1, rewards=[0.0])
    found = Branch(Kind.OBSERVATION, 0, [4], children=[one, two])
    search = Branch(Kind.QUERY, 0, [2, 3], [-1.0, -1.0], [found])
    return Branch(Kind.PROMPT, 0, [1], children=[search]), found


def test_by_hand():
    """Two endings after the prompt and two after what was found, behind an opening; the answers are not computed."""
    root, found = tree()
    forest, nodes = attach([Asked(root, [found, root], [[8], [9, 10]])], opening=[11])
    assert forest.token_id.tolist() == [1, 11, 8, 9, 10, 2, 3, 4, 11, 8, 9, 10]
    assert forest.position.tolist() == [0, 1, 2, 2, 3, 1, 2, 3, 4, 5, 5, 6]
    assert forest.token_id[forest.sampled].tolist() == [8, 9, 10, 8, 9, 10]
    assert nodes[0].tolist() == [[7, 8], [2, 3]]
    check(forest)
    assert root.children[0].children == [found]
    assert len(root.children) == 1


@given(sizes=st.fixed_dictionaries(random_forests.sizes()), pick=st.integers(0, 2**16))
def test_every_ending_has_its_prefix_above_it(sizes, pick):
    rng = np.random.default_rng(pick)
    trees, asked = random_trees(**sizes), []
    for _, root in trees:
        places = [branch for branch in everything(root) if rng.random() < 0.5]
        endings = [rng.integers(29, size=rng.integers(1, 4)).tolist() for _ in range(rng.integers(0, 4))]
        asked.append(Asked(root, places, endings))
    forest, nodes = attach(asked, opening=[1, 2])
    check(forest)
    for one, where in zip(asked, nodes, strict=True):
        assert where.shape == (len(one.places), len(one.endings))
        for place, row in zip(one.places, where, strict=True):
            for ending, node in zip(one.endings, row, strict=True):
                path = np.isin(forest.token_node, ancestors(forest.nodes.parent, int(node)))
                assert forest.token_id[path].tolist() == [*prefix(one.root, place), 1, 2, *ending]
                assert forest.sampled[path].tolist() == [False] * (path.sum() - len(ending)) + [True] * len(ending)


def everything(branch: Branch):
    yield branch
    for child in branch.children:
        yield from everything(child)


def prefix(branch: Branch, place: Branch) -> list[int] | None:
    """Tokens from the root to the end of a node."""
    if branch is place:
        return list(branch.tokens)
    below = (prefix(child, place) for child in branch.children)
    return next(([*branch.tokens, *rest] for rest in below if rest is not None), None)


def test_what_cannot_be_asked_is_refused():
    root, found = tree()
    other, _ = tree()
    with pytest.raises(ValueError, match="tree 0: an ending has no tokens"):
        attach([Asked(root, [found], [[]])], opening=[11])
    with pytest.raises(ValueError, match="tree 1: 2 places, of which not each is one node of it"):
        attach([Asked(root, [root], [[8]]), Asked(root, [root, other], [[8]])], opening=[])
    empty = Branch(Kind.PROMPT, 0, [], episode=0)
    with pytest.raises(ValueError, match="no token before it"):
        attach([Asked(empty, [empty], [[8]])], opening=[])
