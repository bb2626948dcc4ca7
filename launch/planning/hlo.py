"""What a compiled program moves between chips, and its largest temporaries, read from its text.

A loop's body is counted as often as the loop turns: by the number that XLA writes beside it, or by the number that its
condition compares its counter with.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
NO_TEMPORARY = ("parameter", "tuple", "get-tuple-element", "while", "bitcast")
BITS = {"pred": 8, "bf16": 16}  # others say it in their names: f32, s8, u64

_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"\b(pred|bf16|[fsu]\d+)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:body|to_apply|calls|(?:true|false)_computation|branch_computations)=\{?(%?[\w.\-, %]+)")
_INDEX = re.compile(r"index=(\d+)")
_NUMBER = re.compile(r"(\d+)\)")
_GROUPS = re.compile(r"replica_groups=(?:\[\d+,(\d+)\]|\{\{([\d,]+)\}|mesh\[([^\]]*)\] \{([^}]*)\})")
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CONDITION, _BODY = (re.compile(rf"\b{what}=%?([\w.\-]+)") for what in ("condition", "body"))
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_FILE = re.compile(r'^(\d+) "(.*)"$', re.MULTILINE)
_LOCATION = re.compile(r"^(\d+) \{file_name_id=(\d+) function_name_id=\d+ line=(\d+)", re.MULTILINE)
_CALL = re.compile(r"^(\d+) \{file_location_id=(\d+) parent_frame_id=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Temporary:
    """One result inside the program: bytes on a chip, what made it, and the line of source that asked for it."""

    bytes: int
    operation: str
    shape: str
    source: str


@dataclass(frozen=True)
class Program:
    """Collectives by kind, as (how often, bytes that leave a chip in all), and the largest temporaries.

    Bytes are those of algorithms around a ring of the n chips of a group: of an array that is gathered whole, the part
    (n - 1) / n; of one that is summed and kept whole, twice that; of one that is summed and scattered, n - 1 times what
    a chip keeps.
    """

    collectives: dict[str, tuple[int, float]]
    temporaries: list[Temporary]


def read(text: str, *, turns: int, largest: int) -> Program:
    """Reads a compiled module's text.

    Args:
      text: of ``compiled.as_text()``.
      turns: of a loop whose number is not written beside it.
      largest: how many temporaries to name.
    """
    bodies, sources = _bodies(text), _sources(text)
    times = _times(bodies, turns)
    moved: dict[str, list[float]] = defaultdict(lambda: [0, 0])
    found: dict[tuple[str, str], Temporary] = {}
    for name, lines in bodies.items():
        for _, shape, operation, rest in lines:
            kind = operation.removesuffix("-start")
            if kind in COLLECTIVES and times[name]:
                moved[kind][0] += times[name]
                moved[kind][1] += times[name] * _volume(kind, operation, shape, rest)
            if times[name] and operation not in NO_TEMPORARY and not operation.endswith("-start"):
                frame = _FRAME.search(rest)
                where = sources.get(frame[1], "made by the compiler") if frame else "made by the compiler"
                one = Temporary(size(shape), operation, shape.split("{")[0], where)
                key = (where, one.shape)
                if key not in found or found[key].bytes < one.bytes:
                    found[key] = one
    top = sorted(found.values(), key=lambda one: -one.bytes)[:largest]
    return Program({kind: (n, b) for kind, (n, b) in sorted(moved.items())}, top)


def _volume(kind: str, operation: str, shape: str, rest: str) -> float:
    """Bytes that leave a chip."""
    arrays = [size(f"{kind}[{sides}]") for kind, sides in _ARRAY.findall(shape)]
    # What is started asynchronously lists its operand before its result.
    result = max(arrays) if operation.endswith("-start") and kind != "all-reduce" else sum(arrays)
    n = _group(rest)
    if n is None or kind == "collective-permute":
        return result
    return result * {"all-reduce": 2 * (n - 1) / n, "reduce-scatter": n - 1}.get(kind, (n - 1) / n)


def _group(rest: str) -> int | None:
    """How many chips take part together."""
    found = _GROUPS.search(rest)
    if found is None:
        return None
    if found[1]:
        return int(found[1])
    if found[2]:
        return found[2].count(",") + 1
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", found[3]))
    return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", found[4]))


def size(shape: str) -> int:
    """Bytes of an array or of a tuple of arrays, as the text writes them."""
    total = 0
    for kind, sides in _ARRAY.findall(shape):
        bits = BITS[kind] if kind in BITS else int(kind[1:])
        count = 1
        for side in filter(None, sides.split(",")):
            count *= int(side)
        total += count * bits // 8
    return total


def _sources(text: str) -> dict[str, str]:
    """The line of rlsearch that each stack frame stands for: its own, or that of the nearest caller within rlsearch."""
    tables = {}
    for title in ("FileNames", "FileLocations", "StackFrames"):
        start = text.find(f"\n{title}\n")
        tables[title] = text[start : text.find("\n\n", start)] if start >= 0 else ""
    files = dict(_FILE.findall(tables["FileNames"]))
    places = {key: (files.get(file, ""), line) for key, file, line in _LOCATION.findall(tables["FileLocations"])}
    frames = {key: (place, parent) for key, place, parent in _CALL.findall(tables["StackFrames"])}

    def line(key: str) -> str | None:
        seen = set()
        while key in frames and key not in seen:
            seen.add(key)
            place, key = frames[key]
            file, number = places.get(place, ("", ""))
            if "/rlsearch/" in file:
                return f"rlsearch/{file.rpartition('/rlsearch/')[2]}:{number}"
        return None

    return {key: found for key in frames if (found := line(key))}


def _bodies(text: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """Every computation's instructions as (name, shape, operation, rest of the line)."""
    bodies: dict[str, list[tuple[str, str, str, str]]] = {}
    here: list[tuple[str, str, str, str]] | None = None
    for line in text.splitlines():
        if head := _HEAD.match(line):
            here = bodies.setdefault(head[1], [])
        elif line.startswith("}"):
            here = None
        elif here is not None and (found := _LINE.match(line)):
            here.append((found[1], found[2], found[3], found[4]))
    return bodies


def _turns(bodies: dict[str, list], rest: str, otherwise: int) -> int:
    """Of a loop that counts from 0 in equal steps up to a number; ``otherwise`` where the number is not in the text."""
    if known := _TURNS.search(rest):
        return int(known[1])
    condition, body = (bodies[found[1]] for found in (_CONDITION.search(rest), _BODY.search(rest)))
    root = condition[-1]
    counter, limit = (
        (_line(condition, operand) for operand in _operands(root)[:2]) if root[2] == "compare" else (None,) * 2
    )
    if not counter or counter[2] != "get-tuple-element" or not limit or limit[2] != "constant":
        return otherwise
    index, limit = int(_INDEX.search(counter[3])[1]), int(_NUMBER.match(limit[3])[1])
    moved = _line(body, _operands(body[-1])[index])
    steps = [_line(body, operand) for operand in _operands(moved)] if moved and moved[2] == "add" else []
    step = next((int(_NUMBER.match(one[3])[1]) for one in steps if one and one[2] == "constant"), 1)
    return -(-limit // step)


def _operands(line: tuple[str, str, str, str]) -> list[str]:
    return [name.lstrip("%") for name in re.sub(r"/\*.*?\*/", "", line[3].partition(")")[0]).split(", ")]


def _line(lines: list, name: str) -> tuple[str, str, str, str] | None:
    return next((line for line in lines if line[0] == name), None)


def _times(bodies: dict[str, list], turns: int) -> dict[str, int]:
    """How often each computation runs; those inside fusions count as 0, since they are no instructions of their own."""
    called: dict[str, list[tuple[str, int]]] = defaultdict(list)  # callee -> (caller, times in each run of it)
    for name, lines in bodies.items():
        for _, _, operation, rest in lines:
            if operation in ("fusion", "reduce", "scatter", "sort", "map", "reduce-window", "select-and-scatter"):
                continue
            often = _turns(bodies, rest, turns) if operation == "while" else 1
            for group in _CALLED.findall(rest):
                for callee in group.split(","):
                    called[callee.strip().lstrip("%")].append((name, often))
    times: dict[str, int] = {}
    entry = list(bodies)[-1]

    def of(name: str) -> int:
        if name not in times:
            times[name] = 0  # a computation cannot contain itself
            times[name] = 1 if name == entry else sum(of(caller) * often for caller, often in called[name])
        return times[name]

    return {name: of(name) for name in bodies}
