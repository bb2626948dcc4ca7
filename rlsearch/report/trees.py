"""Packs rollout snapshots for the page: token texts once in a table, columns instead of objects, runs for constants.

A packed node is ``{p: parent, k: kind, r: reward, s: searches, t: token ids into the table, m: lengths of alternating
runs of observed and sampled tokens (observed first), l: [[start, logp, ...], ...] segments, a: [advantage, length, ...]
runs}``. Log-probabilities are kept to 0.01 nat as integers of hundredths, advantages to three significant digits.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from rlsearch.report.read import KINDS


def pack(snapshots: list[dict[str, Any]]) -> dict[str, Any]:
    """``{kinds, strings, steps: [{step, scale, trees}]}``; ``scale`` is the largest |advantage| of the snapshot."""
    table: dict[str, int] = {}
    steps = [
        {
            "step": snapshot["step"],
            "scale": max((abs(a) for a in _advantages(snapshot)), default=0.0),
            "trees": [
                {
                    "q": tree["question"],
                    "g": [str(answer) for answer in tree["answers"]],
                    "n": [_node(node, table) for node in tree["nodes"]],
                }
                for tree in snapshot["trees"]
            ],
        }
        for snapshot in snapshots
    ]
    return {"kinds": KINDS, "strings": list(table), "steps": steps}


def leaking(snapshots: list[dict[str, Any]]) -> int:
    """Number of observed tokens that carry a non-zero advantage: anything but 0 is a fault of the run."""
    tokens = (t for s in snapshots for tree in s["trees"] for node in tree["nodes"] for t in node["tokens"])
    return sum(1 for token in tokens if not token["sampled"] and token["advantage"])


def _advantages(snapshot: dict[str, Any]) -> list[float]:
    tokens = (token for tree in snapshot["trees"] for node in tree["nodes"] for token in node["tokens"])
    values = (finite(token["advantage"]) for token in tokens)
    return [_digits(value) for value in values if value is not None]


def _node(node: dict[str, Any], table: dict[str, int]) -> dict[str, Any]:
    # A node whose text was kept without its tokens is shown as one piece of text that nobody sampled.
    tokens = node["tokens"] or [{"text": node["text"], "sampled": False, "logp": None, "advantage": None}]
    packed = {
        "p": node["parent"],
        "k": KINDS.index(node["kind"]),
        "s": node["searches"],
        "t": [table.setdefault(token["text"], len(table)) for token in tokens],
        "m": _alternating([token["sampled"] for token in tokens]),
    }
    logps = [finite(token["logp"]) for token in tokens]
    advantages = [finite(token["advantage"]) for token in tokens]
    if finite(node["reward"]) is not None:
        packed["r"] = _digits(node["reward"])
    if any(x is not None for x in logps):
        packed["l"] = _segments(logps)
    if any(x is not None for x in advantages):
        runs = itertools.groupby(None if x is None else _digits(x) for x in advantages)
        packed["a"] = [x for value, run in runs for x in (value, len(list(run)))]
    return packed


def _alternating(flags: list[bool]) -> list[int]:
    runs = [len(list(run)) for _, run in itertools.groupby(flags)]
    return [0, *runs] if flags and flags[0] else runs


def _segments(values: list[float | None]) -> list[list[int]]:
    segments: list[list[int]] = []
    for i, value in enumerate(values):
        if value is None:
            continue
        if i == 0 or values[i - 1] is None:
            segments.append([i])
        segments[-1].append(round(100 * value))
    return segments


def finite(value: float | None) -> float | None:
    """The value itself, or None where it is missing, infinite or NaN."""
    return value if value is not None and math.isfinite(value) else None


def _digits(value: float) -> float | int:
    short = float(f"{value:.3g}")
    return int(short) if short.is_integer() else short
