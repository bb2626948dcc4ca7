"""Every kind of damage is refused, with the first offending index."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsearch.tree.build import Branch, build
from rlsearch.tree.check import check
from rlsearch.tree.forest import Forest, Kind, with_paths
from tests.tree.random_forests import forests


def forest() -> Forest:
    """Nodes 0-4 (prompt; query, with observation and answer below; answer), then a second tree, nodes 5 and 6.

    Tokens: 0 1 | 2 3 | 4 5 | 6 || 7 | 8 9 for the first tree's nodes 0, 1, 2, 3 || 4; then 10 | 11 for nodes 5, 6.
    """
    answer = Branch(Kind.ANSWER, 1, [6], [-1.0], episode=0, rewards=[1.0])
    query = Branch(Kind.QUERY, 0, [2, 3], [-1.0, -1.0], [Branch(Kind.OBSERVATION, 1, [4, 5], children=[answer])])
    other = Branch(Kind.ANSWER, 0, [7, 8, 9], [-1.0, -1.0, -1.0], episode=1, rewards=[0.0])
    second = Branch(Kind.PROMPT, 0, [10], children=[Branch(Kind.ANSWER, 0, [11], [-1.0], episode=2, rewards=[1.0])])
    return build([(0, Branch(Kind.PROMPT, 0, [0, 1], children=[query, other])), (1, second)], terms=1, notes=["gain"])


def damaged(where: str, index, value) -> Forest:
    """The forest with one entry of a column changed; the column is named by its attributes, ``nodes.paths.node``."""
    return changed(forest(), where.split("."), lambda column: put(column, index, value))


def changed(part, names: list[str], change):
    first, *rest = names
    inner = part[first] if isinstance(part, dict) else getattr(part, first)
    inner = changed(inner, rest, change) if rest else change(inner)
    return {**part, first: inner} if isinstance(part, dict) else dataclasses.replace(part, **{first: inner})


def put(column: np.ndarray, index, value) -> np.ndarray:
    column = column.copy()
    column[index] = value
    return column


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
    ("nodes.episode", 4, 7, "node 4: episode out of range"),
    ("nodes.episode", 4, -2, "node 4: episode out of range"),
    ("nodes.episode", 4, 0, "node 4: rewards differ from those of its episode's first leaf"),
    ("nodes.episode", 6, 0, "node 6: its episode is of another question too"),
    ("nodes.rewards", 3, np.inf, "node 3: infinite reward"),
    ("nodes.rewards", 2, 1.0, "node 2: reward at an inner node"),
    ("nodes.kind", 2, 9, "node 2: no such kind"),
    ("nodes.turn", 2, -1, "node 2: turn before its parent's"),
    ("nodes.turn", 3, 0, "node 3: turn before its parent's"),
    ("nodes.question", 5, -1, "node 5: negative question"),
    ("nodes.notes.gain", 3, np.nan, "node 3: note 'gain' is not finite"),
    ("nodes.notes.gain", 0, np.inf, "node 0: note 'gain' is not finite"),
    ("nodes.paths.node", (1, 1), 1, "path 1: nodes differ from the table's"),
    ("nodes.paths.depth", 2, 1, "node 2: paths.depth differs from the table's"),
    ("nodes.paths.first", 4, 0, "node 4: paths.first differs from the table's"),
    ("nodes.paths.count", 1, 2, "node 1: paths.count differs from the table's"),
    ("nodes.paths.episode", 1, 0, "path 1: paths.episode differs from the table's"),
    ("nodes.paths.earlier", 1, 0, "path 1: paths.earlier differs from the table's"),
    ("nodes.tokens", 1, -2, "node 1: sampled token count"),
    ("nodes.tokens", 2, 2, "node 2: sampled token count"),
    ("sampled", 4, True, "node 2: sampled token count"),
    ("token_id", 5, -1, "token 5: negative id"),
    ("token_node", 4, 0, "token 4: node out of order"),
    ("token_node", 11, 7, "token 11: node out of range"),
    ("token_end", 2, 10, "token 2: end differs from its node's"),
    ("token_end", 0, 12, "token 0: end differs from its node's"),
    ("token_end", 3, -1, "token 3: end differs from its node's"),
    ("token_end", 3, 99, "token 3: end differs from its node's"),
    ("prev", 4, 4, "token 4: prev not before it"),
    ("prev", 4, -2, "token 4: prev not before it"),
    ("prev", 7, 6, "token 7: prev across trees"),
    ("prev", 11, 0, "token 11: prev across trees"),
    ("position", 6, 4, "token 6: position is not its predecessor's plus one"),
    ("behavior_logp", 3, np.nan, "token 3: sampled without a behaviour log-probability"),
    ("behavior_logp", 4, np.nan, "token 4: behaviour log-probability is not finite"),
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


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("prev", r"prev: shape \(13,\) for 12 tokens"),
        ("nodes.turn", r"turn: shape \(8,\) for 7 nodes"),
        ("nodes.rewards", r"rewards: shape \(8, 1\) for 7 nodes"),
        ("nodes.notes.gain", r"note 'gain': shape \(8,\) for 7 nodes"),
        ("nodes.paths.depth", r"paths.depth: shape \(8,\) for 7 nodes"),
    ],
)
def test_columns_of_another_length_are_named(where, message):
    longer = changed(forest(), where.split("."), lambda column: np.concatenate([column, column[-1:]]))
    with pytest.raises(ValueError, match=f"^forest: {message}"):
        check(longer)


@pytest.mark.parametrize("name", ["fan", "questions"])
def test_a_layout_without_room_is_refused(name):
    small = changed(forest(), ["nodes", "paths", name], lambda room: 1)
    with pytest.raises(ValueError, match=rf"^forest: paths: room for 1 {name} is too little, 2 are needed"):
        check(small)


@pytest.mark.parametrize("reward", [1.0, np.nan])
def test_an_episode_of_several_contexts_passes(reward):
    """Leaves 3 and 4 end one episode, whose rewards are equal; NaN is equal to NaN."""
    one = changed(damaged("nodes.episode", 4, 0), ["nodes", "rewards"], lambda rewards: put(rewards, [3, 4], reward))
    columns = {name: column for name, column in vars(one.nodes).items() if name != "paths"}
    check(dataclasses.replace(one, nodes=with_paths(columns)))
    with pytest.raises(ValueError, match=r"path 1: paths.episode differs"):
        check(one)  # laid out for two episodes


STRUCTURE = [
    *("position", "prev", "token_end", "sampled", "behavior_logp", "nodes.end", "nodes.parent", "nodes.tokens"),
    *("nodes.paths.node", "nodes.paths.depth", "nodes.paths.first", "nodes.paths.count"),
    *("nodes.paths.episode", "nodes.paths.earlier"),
]


@settings(max_examples=200)
@given(forests(contexts=True), st.sampled_from(STRUCTURE), st.data())
def test_no_single_change_of_the_structure_passes(forest, where, data):
    column = functools.reduce(getattr, where.split("."), forest)
    index = tuple(data.draw(st.integers(0, size - 1)) for size in column.shape)
    value = 1.0 if where == "behavior_logp" else data.draw(st.integers(-2, int(column.max()) + 2))
    other = changed(forest, where.split("."), lambda column: put(column, index, value))
    if (functools.reduce(getattr, where.split("."), other) == column).all():
        check(other)
    else:
        with pytest.raises(ValueError, match=r"^forest: "):
            check(other)


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
