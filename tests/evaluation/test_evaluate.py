"""Greedy answers: in the order of the questions, whatever the number of slots, the same each time."""

from __future__ import annotations

import json

import pytest

from rlsearch.envs.types import Status
from rlsearch.evaluation.evaluate import answer, evaluate
from rlsearch.sampling.rollouts import POLICY
from tests import small


@pytest.fixture(scope="module")
def run():
    return small.warmed()


def answers(run, questions):
    groups = answer(small.engine(run.parts, slots=(4,)), run.parts.scene, {POLICY: run.params}, questions, done=0)
    return [state for group in groups for state in group]


def test_every_question_is_answered_once_in_order(run):
    """More questions than slots and than a group, so in several goes."""
    questions = run.parts.task.train[:20]
    states = answers(run, questions)
    assert [state.question for state in states] == list(questions)
    assert all(state.status is Status.DONE for state in states)
    assert len({turn.text for state in states for turn in state.turns}) > 3


def test_neither_company_nor_order_changes_an_answer(run):
    questions = run.parts.task.train[:20]
    states = answers(run, questions)
    alone = [answers(run, [question])[0] for question in questions[::5]]
    assert alone == states[::5]
    assert answers(run, questions[::-1]) == states[::-1]


def test_the_record_is_json_and_counts_by_hops(run):
    record = evaluate(
        run.parts.engine,
        run.parts.scene,
        {POLICY: run.params},
        run.parts.task.heldout,
        stage="rl",
        step=3,
        name="heldout",
    )
    assert json.loads(json.dumps(record)) == record
    assert (record["stage"], record["step"], record["name"], record["questions"]) == ("rl", 3, "heldout", 12)
    assert {hops: part["questions"] for hops, part in record["by_hops"].items()} == {"1": 4, "2": 4, "3": 4}
    assert record["searches"] > 0
    assert record["searches"] == pytest.approx(sum(part["searches"] for part in record["by_hops"].values()) / 3)
