"""The desk: every call is answered once, in time or as a failure, and none spoils another."""

from __future__ import annotations

import threading
import time

import pytest

from rlsearch.envs.types import Call, Failure
from rlsearch.errors import InputError
from rlsearch.sampling.calls import CallsConfig, Desk
from rlsearch.search.types import Hits, Passage

NEVER = threading.Event()


class Tool:
    """Answers with the query as a passage; what else a query asks for, it does."""

    def __init__(self):
        self.batches: list[list[str]] = []

    def search(self, queries, *, k):
        self.batches.append(list(queries))
        return [self.answer(query, k) for query in queries]

    def answer(self, query, k):
        match query.split()[0]:
            case "raise":
                raise RuntimeError("out of memory")
            case "never":
                NEVER.wait()
            case "slow":
                time.sleep(0.3)
            case "none":
                return None
            case "dict":
                return {"passages": []}
            case "empty":
                return Hits((), ())
            case "many":
                return Hits((Passage("1", "", ""),) * (k + 1), (0.0,) * (k + 1))
            case "number":
                return Hits((Passage("1", "", 3),), (0.0,))
            case "surrogate":
                return Hits((Passage("1", "a\ud800", "b\udfff"),), (0.0,))
        return Hits((Passage(query, "", query),), (1.0,))


def desk(tool=None, **changes) -> Desk:
    settings = {"at_once": 0, "batch": 8, "timeout": 5.0} | changes
    return Desk({"search": {"here": tool or Tool(), "there": Tool()}}, CallsConfig(**settings))


def call(query: str, k: int = 2) -> Call:
    return Call("search", query, k)


def ids(results):
    return [tuple(passage.id for passage in result.passages) for result in results]


@pytest.mark.parametrize("at_once", [0, 1, 4])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_every_ticket_has_the_results_of_its_calls_in_their_order(at_once, batch):
    asked = desk(at_once=at_once, batch=batch)
    for ticket in range(5):
        asked.ask(ticket, "there" if ticket % 2 else "here", [call(f"q{ticket}.{n}", 1 + n % 2) for n in range(ticket)])
    found = {}
    while asked.pending:
        new = asked.answered(wait=True)
        assert not set(new) & set(found)
        found |= new
    assert {ticket: ids(results) for ticket, results in found.items()} == {
        ticket: [(f"q{ticket}.{n}",) for n in range(ticket)] for ticket in range(5)
    }
    assert (asked.calls, asked.failures) == (10, 0)


def test_calls_of_one_kind_are_asked_in_one_batch():
    tool = Tool()
    asked = desk(tool)
    for ticket in range(3):
        asked.ask(ticket, "here", [call(f"a{ticket}"), call(f"b{ticket}", 1)])
    asked.answered(wait=True)
    assert sorted(map(sorted, tool.batches)) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("raise", "RuntimeError: out of memory"),
        ("none", "answered with NoneType"),
        ("dict", "answered with dict"),
        ("many", "3 passages where 2"),
        ("number", "no text"),
    ],
)
@pytest.mark.parametrize("at_once", [0, 2])
def test_what_goes_wrong_is_the_failure_of_that_call_alone(query, said, at_once):
    asked = desk(at_once=at_once)
    asked.ask(0, "here", [call("good"), call(query), call("empty")])
    asked.ask(1, "here", [call("fine")])
    found = {}
    while asked.pending:
        found |= asked.answered(wait=True)
    good, bad, empty = found[0]
    assert isinstance(bad, Failure) and said in bad.reason
    assert ids([good, *found[1]]) == [("good",), ("fine",)]
    assert empty == Hits((), ())
    assert asked.failures == 1


def test_text_that_has_no_encoding_is_mended():
    asked = desk()
    asked.ask(0, "here", [call("surrogate")])
    ((hits,),) = asked.answered(wait=True).values()
    assert hits.passages == (Passage("1", "a?", "b?"),)


@pytest.mark.parametrize("at_once", [0, 2])
def test_a_call_that_is_never_answered_fails_in_time(at_once):
    asked = desk(at_once=at_once, batch=1, timeout=0.2)
    asked.ask(0, "here", [call("never")])
    asked.ask(1, "here", [call("good")])
    found, begun = {}, time.monotonic()
    while asked.pending:
        found |= asked.answered(wait=True)
    assert time.monotonic() - begun < 3
    assert found[0] == (Failure("timed out after 0.2 s"),)
    assert ids(found[1]) == [("good",)]


def test_a_slow_call_delays_itself_alone():
    asked = desk(at_once=2, batch=1)
    asked.ask(0, "here", [call("slow")])
    for ticket in range(1, 4):
        asked.ask(ticket, "here", [call(f"q{ticket}")])
    order = []
    while asked.pending:
        order += asked.answered(wait=True)
    assert order[-1] == 0
    assert sorted(order) == [0, 1, 2, 3]


def test_without_waiting_what_is_under_way_stays_so():
    asked = desk(at_once=1)
    asked.ask(0, "here", [call("slow")])
    assert asked.answered(wait=False) == {}
    assert asked.pending
    assert list(asked.answered(wait=True)) == [0]
    assert not asked.pending


def test_a_tool_or_a_corpus_that_there_is_not_is_refused():
    with pytest.raises(InputError, match="calls the tool 'serach'; did you mean 'search'"):
        desk().ask(0, "here", [Call("serach", "q", 1)])
    with pytest.raises(InputError, match="the tool 'search' knows no corpus 'her'; did you mean 'here'"):
        desk().ask(0, "her", [call("q")])


@pytest.mark.parametrize("changes", [{"at_once": -1}, {"batch": 0}, {"timeout": 0.0}, {"timeout": float("nan")}])
def test_settings_out_of_range_are_refused(changes):
    with pytest.raises(InputError, match=r"config\.sampling\.calls has"):
        desk(**changes)
