"""Packing loses nothing, shows no token more than its path, and makes every sampled token a target once."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import NONE, Forest, Kind, Rows
from rlsearch.tree.pack import Packed, in_blocks, pack, pad_nodes
from rlsearch.tree.paths import room
from tests.tree.random_forests import TERMS, ancestors, apart, forests, random_forest, trees, visible

WIDTHS = st.integers(4, 60)
TARGETS = st.integers(3, 30)


def numbered(forest: Forest) -> Forest:
    """Token ids that say which token of the forest it is: 1 + its index; padding is 0."""
    return dataclasses.replace(forest, token_id=np.arange(1, len(forest.token_id) + 1, dtype=np.int32))


def packed(forest: Forest, width: int, targets: int) -> Packed:
    """Packs, or gives the example up where a path alone exceeds the row."""
    try:
        return pack(forest, width=width, targets=targets, multiple=1)
    except InputError:
        assume(False)


def pieces(rows: Rows) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each row, the places in use and the forest's index of the token at each."""
    return [(np.flatnonzero(ids), ids[ids > 0] - 1) for ids in rows.token_id]


@given(forests(), WIDTHS, TARGETS)
def test_every_sampled_token_is_a_target_once(forest, width, targets):
    rows = packed(numbered(forest), width, targets).rows
    use = rows.target >= 0
    token = np.take_along_axis(rows.token_id, np.where(use, rows.target, 0), axis=1)[use] - 1
    assert sorted(token) == np.flatnonzero(forest.sampled).tolist()
    before = np.take_along_axis(rows.token_id, rows.target_prev, axis=1)[use] - 1
    assert (before == forest.prev[token]).all()
    assert (rows.target_id[use] - 1 == token).all()
    assert (rows.target_node[use] == forest.token_node[token]).all()
    assert (rows.behavior_logp[use] == forest.behavior_logp[token]).all()
    assert (rows.target[~use] == NONE).all()


@given(forests(), WIDTHS, TARGETS)
def test_a_token_in_a_row_sees_exactly_its_whole_path(forest, width, targets):
    rows = packed(numbered(forest), width, targets).rows
    seen = visible(rows.token_end)
    for row, (places, tokens) in enumerate(pieces(rows)):
        assert (rows.position[row, places] == forest.position[tokens]).all()
        for place, token in zip(places, tokens, strict=True):
            shown = rows.token_id[row, seen[row, place]] - 1
            assert shown.tolist() == ancestors(forest.prev, token)[::-1]


@given(forests(), WIDTHS, TARGETS)
def test_padding_sees_and_is_seen_by_itself_alone(forest, width, targets):
    rows = packed(numbered(forest), width, targets).rows
    seen = visible(rows.token_end)
    for row, place in zip(*np.nonzero(rows.token_id == 0), strict=True):
        assert np.flatnonzero(seen[row, place]).tolist() == [place]
        assert np.flatnonzero(seen[row, :, place]).tolist() == [place]


@given(forests(), WIDTHS, TARGETS)
def test_nothing_is_left_out_and_repeats_are_counted(forest, width, targets):
    result = packed(numbered(forest), width, targets)
    tokens = np.concatenate([tokens for _, tokens in pieces(result.rows)])
    assert set(tokens) == set(range(len(forest.token_id)))
    assert result.tokens == len(tokens)
    assert result.repeated == len(tokens) - len(forest.token_id)
    assert result.rows.token_id.shape[1] == width
    assert result.rows.target.shape[1] == targets


@given(forests())
def test_a_tree_that_fits_is_not_split(forest):
    whole = len(forest.token_id)
    assert pack(forest, width=whole, targets=whole, multiple=1).repeated == 0
    assert len(pack(forest, width=whole, targets=whole, multiple=1).rows.token_id) == 1


def scored(forest: Forest, rows: Rows) -> list[tuple]:
    """Every target with the token ids and the log-probabilities of its path."""
    use, found = rows.target >= 0, []
    seen = visible(rows.token_end)
    for row, slot in zip(*np.nonzero(use), strict=True):
        path = rows.token_id[row, seen[row, rows.target_prev[row, slot]]]
        question = forest.nodes.question[rows.target_node[row, slot]]
        target, logp = rows.target_id[row, slot], rows.behavior_logp[row, slot]
        found.append((int(question), tuple(path.tolist()), int(target), float(logp)))
    return sorted(found)


@given(trees(), WIDTHS, TARGETS, st.randoms(use_true_random=False))
def test_the_order_of_trees_and_siblings_and_the_packing_do_not_matter(branches, width, targets, random):
    forest = build(branches, terms=TERMS)
    before = scored(forest, packed(forest, 200, 200).rows)

    def shuffle(branch: Branch) -> Branch:
        return dataclasses.replace(
            branch, children=[shuffle(child) for child in random.sample(branch.children, k=len(branch.children))]
        )

    other = build(
        [(question, shuffle(root)) for question, root in random.sample(branches, k=len(branches))], terms=TERMS
    )
    assert scored(other, packed(other, width, targets).rows) == before


@given(forests(contexts=True), WIDTHS, TARGETS, st.integers(0, 4), st.data())
def test_nothing_is_told_from_the_value_of_a_token_or_a_turn(forest, width, targets, value, data):
    """B045, B099, B102: ids that stand for padding or the end elsewhere, and turns of the same number, are targets,
    seen, and given a place like any other.
    """
    turn = np.full_like(forest.nodes.turn, value)
    ids = np.where(data.draw(st.booleans()), value, forest.token_id * 0)
    plain, other = packed(forest, width, targets), packed(
        dataclasses.replace(forest, token_id=ids, nodes=dataclasses.replace(forest.nodes, turn=turn)), width, targets
    )  # fmt: skip
    for name in ("position", "token_end", "target", "target_prev", "target_node", "behavior_logp"):
        np.testing.assert_array_equal(getattr(plain.rows, name), getattr(other.rows, name))


@given(trees(contexts=True))
def test_what_sharing_saves_is_the_tokens_that_are_not_forwarded(branches):
    """B052: the tokens of the rows are those of the tree, and not the leaves times their length."""
    forest, chains = build(branches, terms=TERMS), build(apart(branches), terms=TERMS)
    length = len(chains.token_id)
    shared, alone = (pack(each, width=length, targets=length, multiple=1) for each in (forest, chains))
    by_paths = sum(
        len(np.flatnonzero(np.isin(forest.token_node, ancestors(forest.nodes.parent, leaf))))
        for leaf in np.flatnonzero(forest.nodes.episode != NONE)
    )
    assert alone.tokens == by_paths
    assert shared.tokens == len(forest.token_id)
    assert (shared.repeated, alone.repeated) == (0, 0)


@given(forests(), st.integers(1, 3), st.integers(1, 5))
def test_blocks_hold_the_rows_in_order_and_repeat_the_last(forest, block, floor):
    rows = pack(forest, width=40, targets=40, multiple=block).rows
    stacked, used = in_blocks(rows, block=block, floor=floor)
    for flat, whole in zip(jax.tree.leaves(rows), jax.tree.leaves(stacked), strict=True):
        assert whole.shape == (room(floor, used), block, *flat.shape[1:])
        np.testing.assert_array_equal(whole[:used].reshape(flat.shape), flat)
        assert all((one == whole[used - 1]).all() for one in whole[used:])


def test_a_run_has_a_handful_of_shapes():
    """Eighty batches, of which hardly two have equal sizes, with floors that about half of them exceed."""
    shapes, sizes = set(), set()
    for seed in range(80):
        forest = random_forest(seed, trees=16, depth=4, branching=3, longest=5, contexts=0.2 * (seed % 3))
        result = pack(forest, width=32, targets=32, multiple=2)
        rows, _ = in_blocks(result.rows, block=2, floor=14)
        nodes = pad_nodes(forest.nodes, room(256, len(forest.nodes.end)), leaves=150, depth=8, fan=64)
        shapes.add((*(leaf.shape for leaf in jax.tree.leaves((rows, nodes))), nodes.paths.fan))
        sizes.add((len(forest.token_id), len(forest.nodes.end), len(result.rows.token_id)))
    assert len(sizes) > 75
    assert 1 < len(shapes) <= 6


def chain(*lengths: int, question: int) -> tuple[int, Branch]:
    """A prompt and the turns after it, one below the other."""
    branch = None
    for depth, length in reversed(list(enumerate(lengths))):
        kind = Kind.ANSWER if depth else Kind.PROMPT
        end = {"children": [branch]} if branch else {"episode": 0, "rewards": [1.0]}
        branch = Branch(kind, depth, [1] * length, [-1.0] * length if depth else None, **end)
    return question, branch


@pytest.mark.parametrize(
    ("lengths", "width", "targets", "size"),
    [
        ((5, 4), 8, 8, "a path of 9 tokens"),
        ((5, 4, 3), 8, 8, "a path of 9 tokens"),
        ((9, 1), 8, 8, "a path of 9 tokens"),
        ((2, 5), 8, 4, "5 of them sampled"),
    ],
)
def test_a_path_longer_than_a_row_is_refused_by_name_and_size(lengths, width, targets, size):
    forest = build([chain(2, 2, question=3), chain(*lengths, question=7)], terms=1)
    with pytest.raises(InputError, match=rf"question index 7: .*{size}.*row of {width} tokens and {targets} targets"):
        pack(forest, width=width, targets=targets, multiple=1)


def test_a_hand_tree_is_split_between_its_branches():
    """Prompt of 3, two answers of 3: rows of 6 hold the prompt twice, its sampled tokens never, each answer once."""
    answers = [Branch(Kind.ANSWER, 0, [i] * 3, [-1.0] * 3, episode=i, rewards=[0.0]) for i in (5, 6)]
    forest = build([(0, Branch(Kind.PROMPT, 0, [1, 2, 3], children=answers))], terms=1)
    result = pack(forest, width=6, targets=3, multiple=4)
    assert result.rows.token_id[:2].tolist() == [[1, 2, 3, 5, 5, 5], [1, 2, 3, 6, 6, 6]]
    assert result.rows.target.tolist() == [[3, 4, 5], [3, 4, 5], [-1, -1, -1], [-1, -1, -1]]
    assert result.rows.target_prev[:2].tolist() == [[2, 3, 4], [2, 3, 4]]
    assert result.rows.token_end[:2].tolist() == [[6] * 6, [6] * 6]
    assert (result.tokens, result.repeated) == (12, 3)


def test_a_shared_turn_is_a_target_of_the_first_piece_alone():
    answers = [Branch(Kind.ANSWER, 1, [i] * 2, [-1.0] * 2, episode=i, rewards=[0.0]) for i in (5, 6)]
    query = Branch(Kind.QUERY, 0, [4], [-1.0], answers)
    result = pack(build([(0, Branch(Kind.PROMPT, 0, [1], children=[query]))], terms=1), width=4, targets=3, multiple=1)
    assert result.rows.target_id.tolist() == [[4, 5, 5], [6, 6, 0]]


@given(forests(), st.integers(0, 9))
def test_padded_nodes_are_lone_and_empty(forest, extra):
    count = len(forest.nodes.end) + extra
    nodes = pad_nodes(forest.nodes, count)
    columns = {name: column for name, column in vars(nodes).items() if name != "paths"}
    assert all(len(leaf) == count for leaf in jax.tree.leaves(columns))
    assert not nodes.paths.count[count - extra :].any()
    tail = slice(count - extra, count)
    assert (nodes.end[tail] == np.arange(count - extra, count) + 1).all()
    assert (nodes.parent[tail] == NONE).all()
    assert (nodes.episode[tail] == NONE).all()
    assert not nodes.tokens[tail].any()
    assert not nodes.rewards[tail].any()


def test_more_nodes_than_compiled_for_are_refused():
    forest = build([chain(2, 2, question=0)], terms=1)
    with pytest.raises(
        InputError, match=r"2 nodes exceeds the 1 that the step is compiled for; raise config\.rl\.batch\.nodes"
    ):
        pad_nodes(forest.nodes, 1)
