"""Every kind of damage is refused, with the first offending index."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rlsearch.tree.build import Branch, build
from rlsearch.tree.check import check
from rlsearch.tree.forest import Forest, Kind


def forest() -> Forest:
    """Nodes 0-4 (prompt; query, with observation and answer below; answer), then a second tree, nodes 5 and 6.

    Tokens: 0 1 | 2 3 | 4 5 | 6 || 7 | 8 9 for the first tree's nodes 0, 1, 2, 3 || 4; then 10 | 11 for nodes 5, 6.
    """
    answer = Branch(Kind.ANSWER, 1, [6], [-1.0], episode=0, rewards=[1.0])
    query = Branch(Kind.QUERY, 0, [2, 3], [-1.0, -1.0], [Branch(Kind.OBSERVATION, 1, [4, 5], children=[answer])])
    other = Branch(Kind.ANSWER, 0, [7, 8, 9], [-1.0, -1.0, -1.0], episode=1, rewards=[0.0])
    second = Branch(Kind.PROMPT, 0, [10], children=[Branch(Kind.ANSWER, 0, [11], [-1.0], episode=2, rewards=[1.0])])
    return build([(0, Branch(Kind.PROMPT, 0, [0, 1], children=[query, other])), (1, second)], terms=1)


def damaged(where: str, index: int, value) -> Forest:
    whole = forest()
    part, name = (whole.nodes, where.removeprefix("nodes.")) if where.startswith("nodes.") else (whole, where)
    column = getattr(part, name).copy()
    column[index] = value
    part = dataclasses.replace(part, **{name: column})
    return dataclasses.replace(whole, nodes=part) if where.startswith("nodes.") else part


DAMAGE = [
    ("nodes.end", 3, 3, "node 3: end out of order"),
    ("nodes.end", 6, 8, "node 6: end out of order"),
    ("nodes.end", 2, 5, "node 2: not inside its parent"),
    ("nodes.end", 1, 5, "node 1: end differs from its descendants'"),
    ("nodes.parent", 2, 3, "node 2: parent after its child"),
    ("nodes.parent", 5, -2, "node 5: parent after its child"),
    ("nodes.parent", 4, 1, "node 4: not inside its parent"),
    ("nodes.question", 6, 0, "node 6: question differs from its parent's"),
    ("nodes.episode", 4, -1, "node 4: a leaf without an episode"),
    ("nodes.episode", 1, 3, "node 1: a leaf without an episode, or an inner node with one"),
    ("nodes.tokens", 2, 2, "node 2: sampled token count"),
    ("sampled", 4, True, "node 2: sampled token count"),
    ("token_node", 4, 0, "token 4: node out of order"),
    ("token_node", 11, 7, "token 11: node out of range"),
    ("token_end", 2, 10, "token 2: end differs from its node's"),
    ("token_end", 0, 12, "token 0: end differs from its node's"),
    ("prev", 4, 4, "token 4: prev not before it"),
    ("prev", 4, -2, "token 4: prev not before it"),
    ("prev", 7, 6, "token 7: prev across trees"),
    ("prev", 11, 0, "token 11: prev across trees"),
    ("position", 6, 4, "token 6: position is not its predecessor's plus one"),
    ("behavior_logp", 3, np.nan, "token 3: behaviour log-probability is not finite"),
    ("behavior_logp", 3, -np.inf, "token 3: behaviour log-probability is not finite"),
    ("behavior_logp", 3, 0.5, "token 3: sampled with positive log-probability"),
    ("behavior_logp", 4, -0.5, "token 4: log-probability on a token that nobody sampled"),
]


def test_the_whole_forest_passes():
    check(forest())


@pytest.mark.parametrize(("where", "index", "value", "message"), DAMAGE)
def test_damage_is_named(where, index, value, message):
    with pytest.raises(ValueError, match=f"^forest: {message}"):
        check(damaged(where, index, value))


def test_a_token_skipped_on_a_path():
    """Consistent along ``prev``, but token 6 jumps over 5, which it would see all the same."""
    skipping = damaged("prev", 6, 4)
    skipping = dataclasses.replace(skipping, position=np.where(np.arange(12) == 6, 5, skipping.position))
    with pytest.raises(ValueError, match="token 6: position is not the number of tokens before it on its path"):
        check(skipping)


def test_a_sampled_first_token():
    root = Branch(Kind.ANSWER, 0, [1, 2], [-1.0, -1.0], episode=0, rewards=[0.0])
    with pytest.raises(ValueError, match="token 0: sampled without a prefix"):
        check(build([(0, root)], terms=1))
