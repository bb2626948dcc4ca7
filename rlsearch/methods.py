"""Lists the methods of ``configs/methods/`` by family, with their four choices: ``python -m rlsearch.methods``.

Where rollouts branch, what is rewarded, how it becomes credit, and the loss. ``--configs`` names another folder.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlsearch.errors import InputError

FOLDER = Path(__file__).parents[1] / "configs" / "methods"


@dataclass(frozen=True)
class Method:
    """A method as its config says it: name, family, the first line of its head, and four choices in short."""

    name: str
    family: str
    title: str
    rollouts: str
    reward: str
    credit: str
    loss: str


def methods(folder: Path) -> list[Method]:
    """Every method of a folder, by family and name.

    Raises:
      InputError: no such folder, or a config without FAMILY or get_config.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; run from a clone, or give --configs=path/to/configs/methods")
    sys.path.insert(0, str(folder.parents[1]))
    found = [_method(path) for path in sorted(folder.glob("*.py")) if not path.name.startswith("_")]
    return sorted(found, key=lambda method: (method.family, method.name))


def _method(path: Path) -> Method:
    module = runpy.run_path(str(path))
    if missing := [name for name in ("FAMILY", "get_config") if name not in module]:
        raise InputError(f"{path}: has no {' and no '.join(missing)}; every method's config defines both")
    config = module["get_config"]()
    return Method(
        path.stem, module["FAMILY"], (module["__doc__"] or "").strip().splitlines()[0], _rollouts(config),
        _reward(config), _call(config.credit, key="estimator", without=("drop_equal",)), _loss(config.loss),
    )  # fmt: skip


def _call(section: Mapping[str, Any], *, key: str = "kind", without: tuple[str, ...] = ()) -> str:
    """``name(option=value, ...)``."""
    options = [f"{name}={_short(value)}" for name, value in sorted(section.items()) if name not in (key, *without)]
    return f"{section[key]}({', '.join(options)})" if options else section[key]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rollouts(config: Mapping[str, Any]) -> str:
    merged = "" if config.rl.merge_prefixes is None else f", merged within {config.rl.merge_prefixes:g} nats"
    return _call(config.expander) + merged


def _reward(config: Mapping[str, Any]) -> str:
    terms = " + ".join(name if weight == 1 else f"{weight:g} {name}" for name, weight in config.reward.terms)
    notes = ", ".join(f"{column}: {writer}" for column, writer in config.notes)
    if config.scorer is not None:
        notes += f" by {_call(config.scorer, key='model', without=('before', 'after'))}"
    return f"{terms}; {notes}" if notes else terms


def _loss(loss: Mapping[str, Any]) -> str:
    parts = [] if loss.clip is None else [f"{loss.level} {_call(loss.clip)}"]
    parts += [_call(term) for term in loss.terms]
    if loss.mismatch is not None:
        parts.append(_call(loss.mismatch))
    if loss.kl is not None:
        weights = "" if loss.kl.weights.kind == "uniform" else f", {_call(loss.kl.weights)}"
        parts.append(f"{loss.kl.coefficient:g} {loss.kl.estimator} in {loss.kl.place}{weights}")
    if loss.entropy:
        parts.append(f"{loss.entropy:g} entropy")
    return f"{' + '.join(parts)}, per {_call(loss.reduction)}"


COLUMNS = ("name", "rollouts", "reward", "credit", "loss")


def table(found: list[Method]) -> Iterator[str]:
    """The lines of the table, a block a family."""
    for family in sorted({method.family for method in found}):
        rows = [[getattr(method, column) for column in COLUMNS] for method in found if method.family == family]
        width = [max(len(row[i]) for row in [*rows, COLUMNS]) for i in range(len(COLUMNS))]
        yield f"{family} ({len(rows)})"
        for row in [COLUMNS, *rows]:
            yield ("  " + "  ".join(cell.ljust(size) for cell, size in zip(row, width, strict=True))).rstrip()
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=Path, default=FOLDER, help="folder with one config a method")
    try:
        found = methods(parser.parse_args().configs)
    except InputError as error:
        sys.exit(f"error: {error}")
    print("\n".join(table(found)))
    print(f"{len(found)} methods. To train one:")
    print("  python -m rlsearch.train --config=configs/methods/NAME.py --workdir=runs/NAME")


if __name__ == "__main__":
    main()
