"""Which answers are scored, and one number of several, by hand."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest

from rlsearch.envs.types import Question, State, Status
from rlsearch.errors import InputError
from rlsearch.rewards.likelihood import ScorerConfig, asked, combine

GOLD = ScorerConfig("reference", "<answer> ", "</answer>", "gold", "total", "max", "log")


def config(**changes) -> ScorerConfig:
    return ScorerConfig(**{**asdict(GOLD), **changes})


def question(*answers: str) -> Question:
    return Question("set/1", "Who?", answers, (), 0, "corpus")


def test_golden_answers_each_once():
    assert asked(GOLD, question("Ada", " Ada ", "Ada Lovelace"), []) == [("Ada", 1.0), ("Ada Lovelace", 1.0)]


@pytest.mark.parametrize("answers", [(), ("Ada", "  ")])
def test_a_question_without_a_golden_answer_is_refused(answers):
    with pytest.raises(InputError, match=r"question set/1: golden answers \(.*\) cannot be scored"):
        asked(GOLD, question(*answers), [])


def test_answers_of_a_group_count_by_how_often_they_were_given():
    """Three episodes say Ada in two forms, one says Bob; one says nothing and one was cut."""
    said = ["Ada", "Bob", "the ada!", "Ada", "", None]
    states = [State(question("Eve"), Status.DONE, answer=answer) for answer in said]
    assert asked(config(answers="group"), question("Eve"), states) == [("Ada", 0.75), ("Bob", 0.25)]
    assert asked(config(answers="group"), question(), states[4:]) == []


# Two prefixes; answers of 1 and 2 tokens. exp: 1/2 and 1/16, then 1/8 and 1/4.
LOGP = np.log([[1 / 2, 1 / 16], [1 / 8, 1 / 4]])


@pytest.mark.parametrize(
    ("changes", "weight", "expected"),
    [
        ({}, (1, 1), [math.log(1 / 2), math.log(1 / 4)]),
        ({"several": "logsumexp"}, (1, 1), [math.log(9 / 16), math.log(3 / 8)]),
        ({"several": "logsumexp", "scale": "probability"}, (1, 1), [9 / 16, 3 / 8]),
        ({"scale": "probability"}, (1, 1), [1 / 2, 1 / 4]),
        ({"length": "mean", "scale": "probability"}, (1, 1), [1 / 2, 1 / 2]),
        ({"length": "mean", "several": "logsumexp", "scale": "probability"}, (1, 1), [3 / 4, 5 / 8]),
        ({"several": "logsumexp", "scale": "probability"}, (0.75, 0.25), [25 / 64, 5 / 32]),
        ({"scale": "probability"}, (0.25, 0.75), [1 / 8, 3 / 16]),
    ],
)
def test_one_number_by_hand(changes, weight, expected):
    found = combine(config(**changes), LOGP, np.array([1, 2]), np.array(weight))
    assert found.tolist() == pytest.approx(expected)


def test_answers_that_are_as_good_as_impossible_stay_finite():
    far = np.full((1, 2), -4000.0)
    assert combine(config(several="logsumexp"), far, np.ones(2), np.ones(2))[0] == pytest.approx(-4000 + math.log(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": "golden"}, r"config\.scorer\.answers 'golden': unknown; did you mean 'gold'"),
        ({"several": "mean"}, r"config\.scorer\.several 'mean': unknown"),
        ({"length": "sum"}, r"config\.scorer\.length 'sum': unknown"),
        ({"scale": "odds"}, r"config\.scorer\.scale 'odds': unknown"),
    ],
)
def test_unknown_choices_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        config(**changes)
