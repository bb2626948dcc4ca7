"""What a saved ScaNN index says of itself: settings, corpus, encoder and files, checked before anything is loaded."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.types import TextEncoder

FORMAT = 1
MANIFEST = "index.json"
FEWEST_TREE_ROWS = 1000  # below this a tree only costs recall, and scann itself misbehaves on a handful of rows


@dataclass(frozen=True)
class ScannSettings:
    """How an index is built and searched."""

    brute_force_rows: int  # up to this many passages are searched exactly; more get a tree
    leaves: int  # partitions of the tree, about the square root of the number of passages
    leaves_searched: int  # partitions that a query looks into
    block_dimensions: int  # numbers that one 4-bit code of asymmetric hashing stands for
    anisotropic_threshold: float  # of the quantisation loss (Guo et al., 2020)
    reorder: int  # candidates whose inner product is computed exactly
    memory_gb: float  # an index estimated above this is refused, in units of 2**30 bytes

    def __post_init__(self):
        if not 1 <= self.leaves_searched <= self.leaves or self.block_dimensions < 1 or self.reorder < 1:
            raise InputError(f"scann: needs 1 <= leaves_searched <= leaves and positive sizes, found {self}")
        if self.brute_force_rows < max(FEWEST_TREE_ROWS, self.leaves):
            raise InputError(
                f"scann: brute_force_rows is {self.brute_force_rows}; trees start above {FEWEST_TREE_ROWS} passages "
                f"and above the number of leaves ({self.leaves}), so set it to at least the larger"
            )


@dataclass(frozen=True)
class Manifest:
    """The contents of ``index.json``; ``files`` holds [bytes, SHA-256] of every other file."""

    format: int
    settings: dict
    rows: int
    width: int
    encoder: str
    corpus: str
    files: dict[str, list]


def estimated_gb(rows: int, width: int, settings: ScannSettings) -> float:
    """Peak memory of an index in GiB: vectors twice (ours and scann's), and with a tree its codes and centres."""
    size = 2 * 4 * rows * width
    if rows > settings.brute_force_rows:
        size += rows * -(-width // settings.block_dimensions) // 2 + 4 * settings.leaves * width
    return size / 2**30


def check_memory(rows: int, width: int, settings: ScannSettings, source: str) -> None:
    """Raises InputError where an index of this size is estimated above ``settings.memory_gb``."""
    needed = estimated_gb(rows, width, settings)
    if needed > settings.memory_gb:
        raise InputError(
            f"scann index of {source}: {rows} passages x {width} numbers need about {needed:.3g} GiB, the budget "
            f"memory_gb is {settings.memory_gb:g}; raise it where the machine has more, or split the corpus"
        )


def write_manifest(directory: Path, corpus: Corpus, encoder: TextEncoder, settings: ScannSettings) -> None:
    """Describes the files of ``directory``, last of all."""
    manifest = Manifest(
        format=FORMAT,
        settings=dataclasses.asdict(settings),
        rows=len(corpus),
        width=encoder.width,
        encoder=encoder.name,
        corpus=corpus.digest,
        files={path.name: [path.stat().st_size, _sha256(path)] for path in sorted(directory.iterdir())},
    )
    (directory / MANIFEST).write_text(json.dumps(dataclasses.asdict(manifest), indent=1) + "\n", encoding="utf-8")


def check_index(directory: Path, corpus: Corpus, encoder: TextEncoder, settings: ScannSettings) -> None:
    """Checks that ``directory`` holds, whole, the index that these three would build.

    Raises:
      InputError: it does not. The message names the first difference, what was found and what was expected.
    """
    path, again = directory / MANIFEST, "delete the folder and build the index again"
    manifest = _read(path, again)
    expected = {"corpus": corpus.digest, "encoder": encoder.name, "rows": len(corpus), "width": encoder.width}
    for field, value in expected.items():
        found = getattr(manifest, field)
        if found != value:
            what = {"corpus": f"the index of another corpus than {corpus.source}", "encoder": "made by another encoder"}
            raise InputError(
                f"{path}: {what.get(field, 'it does not fit')}: {field} is {found!r}, expected {value!r}; name the "
                f"folder that belongs to it, or {again}"
            )
    for field, value in dataclasses.asdict(settings).items():
        found = manifest.settings.get(field)
        if field != "memory_gb" and found != value:
            raise InputError(f"{path}: settings.{field} is {found!r}, expected {value!r}; set it so, or {again}")
    for name, (size, digest) in manifest.files.items():
        _check_file(directory / name, size, digest, again)


def _read(path: Path, again: str) -> Manifest:
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: no index here ({error.strerror}); build one and save it to this folder") from None
    except ValueError as error:
        raise InputError(f"{path}: not whole JSON ({error}); {again}") from None
    found = row.get("format") if isinstance(row, dict) else None
    if found != FORMAT:
        raise InputError(f"{path}: format is {found!r}, this version reads {FORMAT}; {again}")
    fields = {field.name for field in dataclasses.fields(Manifest)}
    if set(row) != fields:
        raise InputError(f"{path}: fields are {sorted(row)}, expected {sorted(fields)}; {again}")
    return Manifest(**row)


def _check_file(path: Path, size: int, digest: str, again: str) -> None:
    if not path.is_file():
        raise InputError(f"{path}: missing, {MANIFEST} lists it with {size} bytes; {again}")
    found = path.stat().st_size
    if found != size:
        raise InputError(f"{path}: {found} bytes, {MANIFEST} says {size}; it was cut short or changed; {again}")
    if _sha256(path) != digest:
        raise InputError(f"{path}: its SHA-256 is not the one in {MANIFEST}; it was changed; {again}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
