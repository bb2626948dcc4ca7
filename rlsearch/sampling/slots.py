"""Which slot holds what, so that whatever some slot has read is copied and not read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlsearch.models.decoder import Params
from rlsearch.sampling.engine import Engine


@dataclass
class _Held:
    """The first ``length`` of ``tokens``, read by the parameters of a name."""

    name: str
    tokens: list[int]
    length: int


class Slots:
    """Hands out the slots of an engine to contexts, and reads what no slot holds yet.

    Args:
      engine: whose slots.
      params: parameters by name; what one set has read is of no use to another.
    """

    def __init__(self, engine: Engine, params: Mapping[str, Params]):
        self.engine, self.params = engine, params
        self.read_tokens = self.copied_tokens = 0
        self._held: list[_Held | None] = [None] * engine.sampling.slots[-1]
        self._free = list(range(engine.sampling.slots[-1]))  # those that were given back first stand first

    @property
    def free(self) -> int:
        """How many slots nobody has."""
        return len(self._free)

    def admit(self, contexts: Sequence[tuple[str, list[int]]]) -> list[int]:
        """Slots that hold all but the last token of each context; there are as many free ones.

        Equal contexts are read once; of each other one only what no slot has read already.
        """
        mates: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for index, (name, tokens) in enumerate(contexts):
            mates.setdefault((name, tuple(tokens[:-1])), []).append(index)
        slots, first = [-1] * len(contexts), []
        for (name, tokens), members in mates.items():
            source, shared = self._longest(name, tokens)
            slot = source if source in self._free else self._free[0]
            self._free.remove(slot)
            slots[members[0]] = slot
            first.append((name, source, slot, shared, list(tokens)))
            for member in members[1:]:
                slots[member] = self._free.pop(0)
        copies = [(source, slot) for _, source, slot, shared, _ in first if source != slot and shared]
        self._copy(copies)
        self._read(first)
        self._copy([(slots[members[0]], slots[member]) for members in mates.values() for member in members[1:]])
        for (name, tokens), slot in zip(contexts, slots, strict=True):
            self._held[slot] = _Held(name, list(tokens), len(tokens) - 1)
        self.copied_tokens += sum(shared for _, source, slot, shared, _ in first if source != slot)
        self.copied_tokens += sum((len(tokens)) * (len(members) - 1) for (_, tokens), members in mates.items())
        return slots

    def extend(self, slots: Sequence[int], contexts: Sequence[Sequence[int]]) -> None:
        """Reads what the contexts in some slots have grown by, all but the last token of each."""
        held = [self._held[slot] for slot in slots]
        new = [context[one.length : -1] for one, context in zip(held, contexts, strict=True)]
        for name in sorted({one.name for one in held}):
            mine = [i for i, one in enumerate(held) if one.name == name]
            self.engine.read(
                self.params[name], slots=[slots[i] for i in mine], new=[new[i] for i in mine],
                start=[held[i].length for i in mine],
            )  # fmt: skip
        self.read_tokens += sum(map(len, new))
        for slot, context in zip(slots, contexts, strict=True):
            self.hold(slot, context)

    def hold(self, slot: int, context: Sequence[int]) -> None:
        """Says that a slot holds all but the last token of a context, which its turn has read as it was written."""
        self._held[slot] = _Held(self._held[slot].name, list(context), len(context) - 1)

    def release(self, slot: int) -> None:
        """Gives a slot back; what it holds may serve others until it is handed out again."""
        self._free.append(slot)

    def _longest(self, name: str, tokens: Sequence[int]) -> tuple[int, int]:
        """The slot that holds the longest beginning of a context, and how long that is; (-1, 0) where none does."""
        best, longest = -1, 0
        for slot, held in enumerate(self._held):
            if held is not None and held.name == name and held.length:
                shared = _common(held.tokens, tokens, min(held.length, len(tokens)))
                if shared > longest:
                    best, longest = slot, shared
        return best, longest

    def _copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.engine.copy(source=[source for source, _ in pairs], target=[target for _, target in pairs])

    def _read(self, first: Sequence[tuple[str, int, int, int, list[int]]]) -> None:
        for name in sorted({name for name, *_ in first}):
            part = [(slot, shared, tokens) for n, _, slot, shared, tokens in first if n == name]
            new = [tokens[shared:] for _, shared, tokens in part]
            self.engine.read(
                self.params[name], slots=[slot for slot, _, _ in part], new=new, start=[shared for _, shared, _ in part]
            )
            self.read_tokens += sum(map(len, new))


def _common(one: Sequence[int], other: Sequence[int], limit: int) -> int:
    """How many of the first ``limit`` tokens are equal before the first that is not."""
    if limit == 0 or one[0] != other[0]:
        return 0
    differ = np.flatnonzero(np.asarray(one[:limit]) != np.asarray(other[:limit]))
    return int(differ[0]) if len(differ) else limit
