"""Calls of tools: asked in batches while others write, checked, and never waited for beyond their time."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlsearch.envs.types import Call, Failure, Result
from rlsearch.errors import InputError, nearest
from rlsearch.search.types import Hits, Passage, Retriever


@dataclass(frozen=True)
class CallsConfig:
    """How tools are asked."""

    at_once: (
        int  # batches under way while other episodes are written; 0 waits for all, so that runs are equal bit by bit
    )
    batch: int  # calls of a batch at most; 1 where a slow query shall delay none but itself
    timeout: float  # seconds after which the calls of a batch have failed

    def __post_init__(self):
        if self.at_once < 0 or self.batch < 1 or not self.timeout > 0:
            raise InputError(
                f"config.sampling.calls has at_once {self.at_once}, batch {self.batch} and timeout {self.timeout}:"
                f" at_once must be 0 or more, batch 1 or more, timeout above 0"
            )


@dataclass
class _Batch:
    """Calls of one tool about one corpus, for the same number of hits."""

    tool: str
    corpus: str
    k: int
    places: list[tuple[int, int]]  # ticket and number of each call
    queries: list[str]
    begun: float = 0.0
    found: list[Result] | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Desk:
    """Takes calls under the number of a ticket, and gives the results of a ticket once all of them are there.

    Args:
      tools: name of a tool to what answers it about each corpus.
      config: how they are asked.
    """

    def __init__(self, tools: Mapping[str, Mapping[str, Retriever]], config: CallsConfig):
        self.tools, self.config = tools, config
        self.failures = self.calls = 0
        self._results: dict[int, list[Result | None]] = {}
        self._waiting: list[tuple[int, int, str, Call]] = []
        self._under_way: list[_Batch] = []
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def pending(self) -> bool:
        """Whether some ticket has no results yet."""
        return bool(self._results)

    def ask(self, ticket: int, corpus: str, calls: Sequence[Call]) -> None:
        """Takes the calls of a ticket; returns at once.

        Raises:
          InputError: a tool or a corpus that there is not.
        """
        for call in calls:
            if call.tool not in self.tools:
                raise InputError(f"the environment calls the tool {call.tool!r}{nearest(call.tool, self.tools)}")
            if corpus not in self.tools[call.tool]:
                raise InputError(
                    f"the tool {call.tool!r} knows no corpus {corpus!r}{nearest(corpus, self.tools[call.tool])}"
                )
        self._results[ticket] = [None] * len(calls)
        self._waiting += [(ticket, number, corpus, call) for number, call in enumerate(calls)]
        self.calls += len(calls)

    def answered(self, *, wait: bool) -> dict[int, tuple[Result, ...]]:
        """The tickets whose results are there, each given once, by number.

        Where batches are under way while others write, ``wait`` waits for a ticket where none is there; otherwise it
        waits for all in any case.
        """
        while True:
            self._send()
            self._collect()
            ready = {t: tuple(r) for t, r in sorted(self._results.items()) if all(one is not None for one in r)}
            if (ready and self.config.at_once) or not self._results or not (wait or self.config.at_once == 0):
                break
            if len(ready) == len(self._results):
                break
            self._await_news()
        for ticket in ready:
            del self._results[ticket]
        return ready

    def _send(self) -> None:
        """Starts batches of what waits, the oldest calls first, as far as there is room for them."""
        room = (self.config.at_once or 1) - len(self._under_way)
        while self._waiting and room > 0:
            _, _, corpus, call = self._waiting[0]
            alike = [one for one in self._waiting if (one[2], one[3].tool, one[3].k) == (corpus, call.tool, call.k)]
            alike = alike[: self.config.batch]
            self._waiting = [one for one in self._waiting if one not in alike]
            batch = _Batch(call.tool, corpus, call.k, [one[:2] for one in alike], [one[3].query for one in alike])
            batch.begun = time.monotonic()
            self._under_way.append(batch)
            threading.Thread(target=self._work, args=(batch,), daemon=True).start()
            room -= 1

    def _work(self, batch: _Batch) -> None:
        batch.found = _search(self.tools[batch.tool][batch.corpus], batch.queries, batch.k)
        batch.done.set()
        self._news.put(None)

    def _collect(self) -> None:
        """Takes what is there, and gives up what has had its time."""
        now, left = time.monotonic(), []
        for batch in self._under_way:
            if batch.done.is_set():
                found = batch.found
            elif now - batch.begun >= self.config.timeout:
                found = [Failure(f"timed out after {self.config.timeout:g} s")] * len(batch.places)
            else:
                left.append(batch)
                continue
            self.failures += sum(isinstance(one, Failure) for one in found)
            for (ticket, number), result in zip(batch.places, found, strict=True):
                self._results[ticket][number] = result
        self._under_way = left

    def _await_news(self) -> None:
        due = min((batch.begun + self.config.timeout for batch in self._under_way), default=time.monotonic())
        with contextlib.suppress(queue.Empty):
            self._news.get(timeout=max(due - time.monotonic(), 0.0))


def _search(tool: Retriever, queries: Sequence[str], k: int) -> list[Result]:
    """Results of all queries; where a batch fails, each is asked on its own, so that one cannot spoil the others."""
    try:
        found = tool.search(queries, k=k)
        if len(found) != len(queries):
            raise ValueError(f"{len(found)} answers to {len(queries)} queries")
    except Exception as error:  # whatever a tool raises is its own affair; the episode reads of it and goes on
        if len(queries) == 1:
            return [Failure(f"{type(error).__name__}: {error}")]
        return [one for query in queries for one in _search(tool, [query], k)]
    return [_checked(hits, k) for hits in found]


def _checked(hits: object, k: int) -> Result:
    """The hits as they are, with text that can be encoded; a failure where they are none."""
    passages = getattr(hits, "passages", None)
    if not isinstance(hits, Hits) or not all(isinstance(passage, Passage) for passage in passages):
        return Failure(f"answered with {type(hits).__name__}, which is no list of passages")
    if len(passages) > k:
        return Failure(f"answered with {len(passages)} passages where {k} were asked for")
    if not all(isinstance(text, str) for passage in passages for text in (passage.id, passage.title, passage.text)):
        return Failure("answered with a passage whose id, title or text is no text")
    try:
        for passage in passages:
            (passage.title + passage.text).encode()
    except UnicodeEncodeError:
        clean = tuple(Passage(p.id, _encodable(p.title), _encodable(p.text)) for p in passages)
        return Hits(clean, hits.scores)
    return hits


def _encodable(text: str) -> str:
    """Text without halves of surrogate pairs, which no encoding has."""
    return text.encode("utf-8", "replace").decode()
