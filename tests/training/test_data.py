"""Question streams: resumed equals straight, shares make up the batch, the same in every process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rlsearch.envs.types import Question
from rlsearch.errors import InputError
from rlsearch.training.data import question_stream, step_stream

QUESTIONS = tuple(Question(f"q{i}", "?", ("a",), (), 1, "c") for i in range(10))


def stream(*, batch=4, seed=0, process=0, processes=1):
    return question_stream(QUESTIONS, batch=batch, seed=seed, process=process, processes=processes)


def ids(stream, count: int) -> list[list[str]]:
    return [[question.id for question in next(stream)] for _ in range(count)]


@pytest.mark.parametrize("stopped", [0, 1, 2, 3, 7])
def test_a_resumed_stream_goes_on_as_if_it_had_not_stopped(stopped):
    """Over the ends of passes, and through JSON as a checkpoint has it."""
    first, second = stream(), stream()
    done = ids(first, stopped)
    second.set_state(json.loads(json.dumps(first.get_state())))
    assert done + ids(second, 12 - stopped) == ids(stream(), 12)


def test_every_pass_meets_every_question_once_in_another_order():
    seen = [name for batch in ids(stream(batch=5), 4) for name in batch]
    assert sorted(seen[:10]) == sorted(seen[10:]) == sorted(question.id for question in QUESTIONS)
    assert seen[:10] != seen[10:]


def test_the_seed_decides():
    assert ids(stream(seed=1), 5) != ids(stream(seed=2), 5)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_share_out_the_batch(processes):
    whole = ids(stream(), 6)
    shares = [ids(stream(process=p, processes=processes), 6) for p in range(processes)]
    assert [[name for part in parts for name in part] for parts in zip(*shares, strict=True)] == whole


def test_another_process_of_the_machine_draws_the_same():
    code = "from tests.training.test_data import ids, stream; import json; print(json.dumps(ids(stream(seed=3), 9)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == ids(stream(seed=3), 9)


@pytest.mark.parametrize(
    ("setting", "said"),
    [({"batch": 11}, "10 training questions do not fill a step of 11"), ({"processes": 3}, "does not divide among 3")],
)
def test_a_batch_that_cannot_be_made_is_refused(setting, said):
    with pytest.raises(InputError, match=said):
        stream(**setting)


def test_steps_are_made_in_order_and_resumed_by_index():
    made = step_stream(lambda step: step * 10, steps=5, ahead=3)
    assert list(made) == [0, 10, 20, 30, 40]
    later = step_stream(lambda step: step * 10, steps=5, ahead=3)
    later.set_state({"next_index": 3})
    assert list(later) == [30, 40]
