"""Notes by hand: what each writer says of an episode, and where it stands in a tree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlsearch.envs.types import Call, Piece, Question, State, Status, Turn
from rlsearch.errors import InputError
from rlsearch.rewards import notes
from rlsearch.rewards.notes import Notes
from rlsearch.sampling.grow import Episode, Tree
from rlsearch.tree.build import Branch
from rlsearch.tree.forest import Kind

QUESTION = Question("set/1", "Who?", ("Ada",), ("p1", "p2"), 2, "corpus")


def turn(kind: str, hits: tuple[str, ...] = (), read: str = "") -> Turn:
    pieces = (Piece(read, trusted=False),) if read else ()
    return Turn("text", kind, (Call("search", "query", 3),) * (kind == "search"), hits, observation=pieces)


# Finds p1 and p9; finds p1 again and p2, where the answer stands; is no action; answers.
TURNS = (
    turn("search", ("p1", "p9"), "some text"),
    turn("search", ("p1", "p2"), "it was Ada"),
    turn("invalid", (), "no such action"),
    turn("answer"),
)
STATE = State(QUESTION, Status.DONE, TURNS, (), "Ada")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("evidence", [0.5, 1, 1, 1]),
        ("new_evidence", [0.5, 0.5, 0, 0]),
        ("repetition", [0, 0.5, 0, 0]),
        ("gain_less_repetition", [0.5, 0, 0, 0]),
        ("answer_seen", [0, 1, 1, 1]),
        ("invalid", [0, 0, 1, 0]),
        ("valid", [1, 1, 0, 1]),
        ("found_nothing", [0, 0, 0, 0]),
        ("found_no_evidence", [0, 0, 0, 0]),
        ("found_evidence", [1, 2, 0, 0]),
        ("number", [0, 1, 2, 3]),
        ("answers_now", [0, 0, 0, 1]),
    ],
)
def test_every_turn_by_hand(name, expected):
    assert [notes.TURNS[name](STATE, i) for i in range(4)] == expected


def test_every_writer_is_tested_above_or_below():
    assert set(notes.TURNS) == {
        "evidence", "new_evidence", "repetition", "gain_less_repetition", "answer_seen", "invalid", "valid",
        "found_nothing", "found_no_evidence", "found_evidence", "number", "answers_now",
        "query_number",
    }  # fmt: skip
    assert {name: writer(STATE) for name, writer in notes.EPISODES.items()} == {
        "searches": 2, "answered": 1, "hops": 2, "attempt": 0, "nothing": 0,
    }  # fmt: skip


def test_equal_queries_have_one_number():
    first, same, other = (
        replace(TURNS[0], calls=(Call("search", query, 3),)) for query in ("Who is  Ada", "who is ada", "who was ada")
    )
    state = replace(STATE, turns=(first, same, other, TURNS[2], TURNS[3]))
    numbers = [notes.query_number(state, i) for i in range(5)]
    assert numbers[0] == numbers[1]
    assert len(set(numbers)) == 4
    assert all(number == np.float32(number) for number in numbers)


def test_a_search_that_finds_nothing_and_one_that_is_not_made():
    empty, unanswered = turn("search", (), "nothing found"), turn("search")
    state = replace(STATE, turns=(empty, TURNS[0], TURNS[0], unanswered))
    assert [notes.found_nothing(state, i) for i in range(4)] == [1, 0, 0, 0]
    assert [notes.found_no_evidence(state, i) for i in range(4)] == [1, 0, 1, 0]


def test_without_known_evidence_nothing_is_gained():
    state = replace(STATE, question=replace(QUESTION, supporting_ids=()))
    assert [notes.new_evidence(state, i) for i in range(4)] == [0, 0, 0, 0]


def test_a_note_depends_on_the_turns_before_it_alone():
    """Or branches that share a turn would disagree about it."""
    for name, writer in notes.TURNS.items():
        for i in range(4):
            assert writer(STATE, i) == writer(replace(STATE, turns=TURNS[: i + 1], answer=None), i), name


def tree() -> Tree:
    """A search shared by two episodes; one answers, the other searches again and answers."""
    first = Branch(Kind.ANSWER, 1, [1], [-1.0], episode=0, rewards=[1.0])
    second = Branch(Kind.ANSWER, 2, [1], [-1.0], episode=1, rewards=[0.0])
    again = Branch(Kind.QUERY, 1, [1], [-1.0], [Branch(Kind.OBSERVATION, 1, [2], children=[second])])
    search = Branch(Kind.QUERY, 0, [1], [-1.0], [Branch(Kind.OBSERVATION, 0, [2], children=[first, again])])
    states = [
        replace(STATE, turns=(TURNS[0], TURNS[3])), replace(STATE, turns=(TURNS[0], TURNS[1], TURNS[3]))
    ]  # fmt: skip
    leaves = (first, second)
    root = Branch(Kind.PROMPT, 0, [0], children=[search])
    grown = Tree(1, root)
    for number, (leaf, state) in enumerate(zip(leaves, states, strict=True)):
        grown.episodes.append(Episode([(grown, leaf)], state, cut=False, number=number))
    return grown


def test_notes_stand_at_the_turns_and_where_episodes_end():
    grown = tree()
    Notes((("step_reward", "new_evidence"), ("stratum", "searches"), ("baseline", "persistent_value"))).write(
        [grown], [0.0, 0.25], {}
    )
    search = grown.root.children[0]
    first, again = search.children[0].children
    second = again.children[0].children[0]
    assert grown.root.notes == search.children[0].notes == {}
    assert search.notes == {"step_reward": 0.5}
    assert again.notes == {"step_reward": 0.5}
    assert first.notes == {"step_reward": 0, "stratum": 1, "baseline": 0.25}
    assert second.notes == {"step_reward": 0, "stratum": 2, "baseline": 0.25}


def test_what_a_scorer_says_stands_before_the_first_turn_and_at_every_turn():
    """-3 before any turn, -1 after the first search, -2 after the second; an answer has what was said before it."""
    grown = tree()
    search = grown.root.children[0]
    first, again = search.children[0].children
    second = again.children[0].children[0]
    scored = {id(grown.root): -3.0, id(search.children[0]): -1.0, id(again.children[0]): -2.0}
    written = Notes((("potential", "answer_likelihood"),))
    written.write([grown], [], scored)
    found = [branch.notes.get("potential") for branch in (grown.root, search, first, again, second)]
    assert found == [-3, -1, -1, -2, -2]
    assert written.said([grown]) == {"potential_first": -3, "potential_last": -1.5}
    assert Notes((("a", "valid"),)).said([grown]) == {}
    assert search.children[0].notes == again.children[0].notes == {}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            (("step_reward", "new_evidnce"),),
            r"'new_evidnce' writes 'step_reward': unknown; did you mean 'new_evidence'",
        ),
        ((("a", "valid"), ("a", "invalid")), "a column is written twice"),
        (("valid",), "'valid' is no .column, writer. pair"),
    ],
)
def test_notes_that_cannot_be_written_are_refused(columns, message):
    with pytest.raises(InputError, match=message):
        Notes(columns)
