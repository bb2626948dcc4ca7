"""Reads a run directory into one value, checked field by field; every part may be missing while a run is going."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlsearch.errors import InputError

KINDS = ("prompt", "think", "search", "information", "answer", "other")


@dataclass(frozen=True)
class Run:
    """What a run has written so far.

    ``metrics`` maps each stage, in order of appearance, to its lines in order of step. ``config`` and ``summary`` are
    None until they exist. ``notes`` are sentences about what was left out, for the reader of the page.
    """

    name: str
    config: dict[str, Any] | None
    metrics: dict[str, list[dict[str, Any]]]
    evaluations: list[dict[str, Any]]
    snapshots: list[dict[str, Any]]
    summary: dict[str, Any] | None
    notes: tuple[str, ...]


def read_run(run_dir: Path) -> Run:
    """Reads the files of ``run_dir``.

    Raises:
      InputError: the directory does not exist, or a file is not what a run writes (file, line or field are named).
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise InputError(f"{run_dir}: no such directory; give the --workdir of a training run")
    notes: list[str] = []
    stages: dict[str, dict[int, dict[str, Any]]] = {}
    for where, line in _lines(run_dir / "metrics.jsonl", notes):
        _check_metrics(line, where)
        # A resumed run repeats the steps after its last checkpoint: the later line is the one that counts.
        stages.setdefault(line["stage"], {})[line["step"]] = line
    evaluations: dict[tuple[str, str, int], dict[str, Any]] = {}
    for where, line in _lines(run_dir / "evaluations.jsonl", notes):
        need(line, "step", int, where), need(line, "name", str, where), need(line, "stage", str, where)
        check_evaluation(line, where)
        evaluations[line["stage"], line["name"], line["step"]] = line
    return Run(
        name=run_dir.resolve().name,
        config=_object(run_dir / "config.json"),
        metrics={stage: [lines[step] for step in sorted(lines)] for stage, lines in stages.items()},
        evaluations=sorted(evaluations.values(), key=lambda line: line["step"]),
        snapshots=_snapshots(run_dir / "rollouts"),
        summary=_summary(run_dir / "summary.json"),
        notes=tuple(notes),
    )


def need(holder: Any, key: str, kind: Any, where: str) -> Any:
    """``holder[key]``, or an InputError that names the field, when it is missing or not of ``kind``."""
    if not isinstance(holder, dict) or key not in holder:
        raise InputError(f"{where}: no field {key!r}; is the file written by another program or version?")
    value = holder[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = " or ".join(k.__name__ for k in kinds).replace("NoneType", "null")
        raise InputError(f"{where}: field {key!r} is {json.dumps(value)[:60]}, needs {names}")
    return value


def check_evaluation(line: dict[str, Any], where: str) -> None:
    """An evaluation has its number of questions, exact match and searches, and the same for each number of hops."""
    for key, kind in (("questions", int), ("exact_match", (int, float)), ("searches", (int, float))):
        need(line, key, kind, where)
    for hops, part in need(line, "by_hops", dict, where).items() if "by_hops" in line else ():
        if not str(hops).isdigit():
            raise InputError(f"{where}: by_hops has the key {hops!r}, needs a number of hops")
        for key, kind in (("questions", int), ("exact_match", (int, float)), ("searches", (int, float))):
            need(part, key, kind, f"{where}: by_hops.{hops}")


def _check_metrics(line: dict[str, Any], where: str) -> None:
    need(line, "stage", str, where), need(line, "step", int, where)
    for key in line.keys() - {"stage", "step"}:
        need(line, key, (int, float, type(None)), where)


def _load(text: str, where: str, first_line: int) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{where}:{first_line + error.lineno - 1}"
        raise InputError(f"{place}: not JSON ({error.msg}, column {error.colno}); repair or remove it") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}:{first_line}: {text[:60]!r} is not a JSON object; repair or remove it")
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; repair or remove the file") from None


def _object(path: Path) -> dict[str, Any] | None:
    return _load(_text(path), str(path), 1) if path.is_file() else None


def _lines(path: Path, notes: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """(place, object) for each line. A last line without its newline is still being written: a note, not an error."""
    if not path.is_file():
        return []
    *lines, rest = _text(path).split("\n")
    found = [(f"{path}:{i}", _load(line, str(path), i)) for i, line in enumerate(lines, 1) if line.strip()]
    if rest.strip():
        try:
            found.append((f"{path}:{len(lines) + 1}", _load(rest, str(path), len(lines) + 1)))
        except InputError:
            notes.append(f"{path.name} ends in an unfinished line ({len(lines) + 1}), which is left out.")
    return found


def _summary(path: Path) -> dict[str, Any] | None:
    summary = _object(path)
    for key in ("before", "after"):
        if summary and summary.get(key) is not None:
            need(summary, key, dict, str(path))
            check_evaluation(summary[key], f"{path}: {key}")
    if summary and "seconds" in summary:
        for key in need(summary, "seconds", dict, str(path)):
            need(summary["seconds"], key, (int, float), f"{path}: seconds")
    for key in ("parameters", "peak_gb"):
        if summary and key in summary:
            need(summary, key, (int, float), str(path))
    return summary


def _snapshots(folder: Path) -> list[dict[str, Any]]:
    snapshots = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        snapshot = _load(_text(path), str(path), 1)
        need(snapshot, "step", int, str(path))
        for i, tree in enumerate(need(snapshot, "trees", list, str(path))):
            _check_tree(tree, f"{path}: trees[{i}]")
        snapshots.append(snapshot)
    return sorted(snapshots, key=lambda snapshot: snapshot["step"])


def _check_tree(tree: dict[str, Any], where: str) -> None:
    need(tree, "question", str, where), need(tree, "answers", list, where)
    if not need(tree, "nodes", list, where):
        raise InputError(f"{where}: nodes is empty; a tree has at least its prompt")
    for i, node in enumerate(tree["nodes"]):
        here = f"{where}.nodes[{i}]"
        parent = need(node, "parent", int, here)
        if not -1 <= parent < i:
            raise InputError(f"{here}: parent is {parent}, needs -1 (a root) or the index of an earlier node")
        if need(node, "kind", str, here) not in KINDS:
            raise InputError(f"{here}: kind is {node['kind']!r}, needs one of {', '.join(KINDS)}")
        need(node, "text", str, here), need(node, "searches", int, here)
        need(node, "reward", (int, float, type(None)), here)
        for j, token in enumerate(need(node, "tokens", list, here)):
            place = f"{here}.tokens[{j}]"
            need(token, "text", str, place), need(token, "sampled", bool, place)
            for key in ("logp", "advantage"):
                need(token, key, (int, float, type(None)), place)
