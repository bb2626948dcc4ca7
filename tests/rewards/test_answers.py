from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.rewards.answers import cover_match, exact_match, f1, normalise

words = st.lists(st.sampled_from(["the", "a", "Paris", "in", "France", "no", "U.S.", "x!", "--"]), max_size=5).map(
    " ".join
)
filled = words.filter(lambda text: bool(text.strip()))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("U.S.", "us"),
        ("rock-and-roll", "rockandroll"),
        ("AC/DC", "acdc"),
        ("3.5", "35"),
        ("1,000", "1000"),
        ("A", ""),
        ("the", ""),
        ("Vitamin A", "vitamin"),
        ("  The\tGreat\n Gatsby ", "great gatsby"),
        ("theatre", "theatre"),
        ("\u201cquoted\u201d", "\u201cquoted\u201d"),
        ("1914\u20131918", "1914\u20131918"),
        ("\uff21\uff0c", "\uff41\uff0c"),
        ("Röntgen", "röntgen"),
        ("the-end", "theend"),
        ("rock\u2013the\u2013boat", "rock\u2013 \u2013boat"),
    ],
)
def test_normalisation(text, normal):
    assert normalise(text) == normal


@given(st.text())
def test_normalising_leaves_no_punctuation_capitals_or_double_blanks(text):
    normal = normalise(text)
    assert normal == " ".join(normal.split())
    assert not any(character in normal for character in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    assert not {"a", "an", "the"} & set(normal.split())


def test_exact_match_is_equality_with_any_golden_answer():
    assert exact_match("the Chief of Protocol.", golds=["Chief of Protocol"]) == 1.0
    assert exact_match("US", golds=["America", "U.S."]) == 1.0
    assert exact_match("Chief", golds=["Chief of Protocol"]) == 0.0
    assert exact_match(None, golds=["x"]) == 0.0


def test_a_golden_answer_that_normalises_to_nothing_matches_only_itself():
    assert exact_match("A", golds=["A"]) == 1.0
    assert exact_match("a.", golds=["A"]) == 1.0
    assert exact_match("the", golds=["A"]) == 0.0
    assert exact_match("", golds=["A"]) == 0.0
    assert exact_match("!", golds=["!"]) == 1.0
    assert exact_match("?", golds=["!"]) == 0.0
    assert exact_match(None, golds=["A"]) == 0.0
    assert f1("A", golds=["A"]) == 1.0
    assert f1("the", golds=["A"]) == 0.0


def test_cover_match_refuses_golden_answers_that_are_part_of_everything():
    assert cover_match("It was Paris, I think", golds=["paris"]) == 1.0
    assert cover_match("London", golds=["paris"]) == 0.0
    assert cover_match("anything", golds=["A", "paris"]) == 0.0
    assert math.isnan(cover_match("anything", golds=["A"]))
    assert math.isnan(cover_match(None, golds=["the"]))
    assert cover_match(None, golds=["paris"]) == 0.0


@pytest.mark.parametrize(
    ("prediction", "golds", "value"),
    [
        ("Chief of Protocol", ["Chief of Protocol"], 1.0),
        ("Chief of Staff", ["Chief of Protocol"], 2 * 2 / 6),
        ("the Paris", ["Paris France"], 2 / 3),
        ("x x y", ["x z"], 2 / 5),
        ("x x", ["x x x"], 4 / 5),
        ("London", ["Paris"], 0.0),
        ("Paris", ["London", "in Paris"], 2 / 3),
        ("no", ["no idea"], 0.0),
        ("yes it is", ["yes"], 0.0),
        ("Yes.", ["yes"], 1.0),
        ("", ["Paris"], 0.0),
        (None, ["Paris"], 0.0),
    ],
)
def test_f1_by_hand(prediction, golds, value):
    assert f1(prediction, golds=golds) == pytest.approx(value)


@given(words, st.lists(filled, min_size=1, max_size=3))
def test_measures_agree_with_each_other(prediction, golds):
    exact, cover, overlap = (score(prediction, golds=golds) for score in (exact_match, cover_match, f1))
    assert exact in (0.0, 1.0) and 0.0 <= overlap <= 1.0
    assert exact <= overlap
    assert not math.isnan(cover) or all(not normalise(gold) for gold in golds)
    assert max(exact_match(prediction, golds=[gold]) for gold in golds) == exact
    assert exact_match(golds[0], golds=golds) == f1(golds[0], golds=golds) == 1.0


@pytest.mark.parametrize("score", [exact_match, cover_match, f1])
@pytest.mark.parametrize("prediction", ["x", None])
def test_no_golden_answer_is_no_score(score, prediction):
    for golds in ([], "Paris"):
        with pytest.raises(ValueError, match="golden answers are"):
            score(prediction, golds=golds)


def test_a_blank_golden_answer_is_no_score():
    with pytest.raises(ValueError, match="is blank"):
        exact_match("x", golds=[" "])
