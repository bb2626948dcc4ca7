from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rlsearch.envs.search_r1 import SearchEnv, SearchEnvConfig
from rlsearch.envs.types import Question, State, Status
from rlsearch.evaluation.metrics import record
from tests.envs.fakes import PASSAGES, hits

ENV = SearchEnv(SearchEnvConfig(max_turns=2, hits=3, style="compact"))


def episode(number: int, *texts: str, hops: int, golds=("Denmark",), supporting=()) -> State:
    state = ENV.start(
        Question(id=f"t/{number}", text="?", answers=golds, supporting_ids=supporting, hops=hops, corpus="t")
    )
    for text in texts:
        state = ENV.act(state, text)
        if state.status is Status.WAIT:
            state = ENV.observe(state, (hits(PASSAGES[0]),))
    return state


EPISODES = [
    episode(1, "<search>a</search>", "<answer>denmark.</answer>", hops=1, supporting=("p1",)),
    episode(2, "<search>a</search>", "x", "<answer>in Denmark</answer>", hops=2, supporting=("p1", "p2")),
    episode(3, "<search>a</search>", "<search>b</search>", "<search>c</search>", hops=2),
    episode(4, "<answer>Norway</answer>", hops=0, golds=("A",)),
]


def test_a_record_by_hand():
    made = record(EPISODES, stage="rl", step=3, name="heldout")
    by_hops = made.pop("by_hops")
    assert made == {
        "stage": "rl",
        "step": 3,
        "name": "heldout",
        "normaliser": "squad-1",
        "questions": 4,
        "exact_match": 1 / 4,
        "f1": pytest.approx((1 + 2 / 3) / 4),
        "cover_match": pytest.approx(2 / 3),  # the gold "A" covers everything: left out
        "searches": 4 / 4,
        "recall": (1 + 0.5) / 2,
        "recall_questions": 2,
        "answered": 3 / 4,
        "valid": pytest.approx((1 + 2 / 3 + 1 + 1) / 4),
    }
    assert list(by_hops) == ["0", "1", "2"]
    assert [by_hops[key]["questions"] for key in by_hops] == [1, 1, 2]
    assert [by_hops[key]["exact_match"] for key in by_hops] == [0.0, 1.0, 0.0]
    assert [by_hops[key]["searches"] for key in by_hops] == [0.0, 1.0, 1.5]
    assert [by_hops[key]["recall"] for key in by_hops] == [None, 1.0, 0.5]


def test_a_record_is_json_and_does_not_depend_on_the_order():
    made = record(EPISODES, stage="rl", step=0, name="heldout")
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    turned = record(EPISODES[::-1], stage="rl", step=0, name="heldout")
    parts = zip((made, *made.pop("by_hops").values()), (turned, *turned.pop("by_hops").values()), strict=True)
    for left, right in parts:
        assert left == {
            key: pytest.approx(value) if isinstance(value, float) else value for key, value in right.items()
        }


def test_unknown_evidence_gives_no_recall_rather_than_zero():
    made = record(EPISODES[2:], stage="rl", step=0, name="heldout")
    assert made["recall"] is None and made["recall_questions"] == 0


def test_by_hops_adds_up_to_the_whole():
    made = record(EPISODES, stage="rl", step=0, name="heldout")
    for key in ("exact_match", "f1", "searches", "answered", "valid"):
        parts = [part["questions"] * part[key] for part in made["by_hops"].values()]
        assert sum(parts) / made["questions"] == pytest.approx(made[key])


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([], "no episode to score"),
        ([EPISODES[0], episode(9, "x", hops=1)], "1 episodes are not done, the first is t/9"),
        ([EPISODES[0], EPISODES[1], replace(EPISODES[2], question=EPISODES[0].question)], "question t/1 occurs twice"),
    ],
)
def test_episodes_that_make_no_evaluation_are_refused(states, message):
    with pytest.raises(ValueError, match=message):
        record(states, stage="rl", step=0, name="heldout")
