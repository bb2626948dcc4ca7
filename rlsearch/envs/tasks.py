"""A task put together: its questions, its environment, and a retriever for each of its corpora."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.envs import environments
from rlsearch.envs.question_sets import load_questions
from rlsearch.envs.types import Env, Question
from rlsearch.envs.worlds import World, WorldsConfig, draw_questions, make_world, name_pool
from rlsearch.search import stores
from rlsearch.search.corpus import Corpus, load_corpus
from rlsearch.search.types import Retriever


@dataclass(frozen=True)
class Task:
    """What a run is about.

    Attributes:
      env: the environment.
      train: questions to learn from.
      heldout: questions that only evaluation sees.
      corpora: corpus name to corpus; ``Question.corpus`` names one of them.
      worlds: the training worlds by corpus name, for demonstrations; empty for question files.
      words: words that a vocabulary trained for the task keeps whole; empty for question files.
    """

    env: Env
    train: tuple[Question, ...]
    heldout: tuple[Question, ...]
    corpora: Mapping[str, Corpus]
    worlds: Mapping[str, World]
    words: tuple[str, ...]


@dataclass(frozen=True)
class WorldsTask:
    """``config.task`` of kind "worlds"."""

    worlds: WorldsConfig
    train_questions: int  # of each training world
    heldout_questions: int  # of each held-out world


@dataclass(frozen=True)
class FilesTask:
    """``config.task`` of kind "files": one question set and its corpus."""

    source: str  # name of the question set
    questions: str  # path of the questions
    corpus: str  # path of the corpus
    train_split: str
    heldout_split: str
    heldout_questions: int  # evaluated at most, the first of the split


def make_task(section: ConfigDict, env: ConfigDict, *, seed: int) -> Task:
    """The task that ``config.task`` and ``config.env`` describe."""
    spec = configs.read_kind(section, {"worlds": WorldsTask, "files": FilesTask}, "config.task")
    parts = _worlds(spec, seed) if isinstance(spec, WorldsTask) else _files(spec)
    return Task(env=environments.make(env), **parts)


def open_retrievers(task: Task, section: ConfigDict, directory: Path) -> dict[str, Retriever]:
    """A retriever for every corpus, from the index in ``directory`` where there is one, else built and saved there."""
    return stores.open_all(task.corpora, section, directory)


def _worlds(spec: WorldsTask, seed: int) -> dict:
    train = [make_world(spec.worlds, seed=seed, index=i, split="train") for i in range(spec.worlds.training)]
    heldout = [make_world(spec.worlds, seed=seed, index=i, split="heldout") for i in range(spec.worlds.heldout)]
    counts = {world.name: spec.train_questions for world in train}
    counts |= {world.name: spec.heldout_questions for world in heldout}
    asked = {w.name: draw_questions(spec.worlds, w, seed=seed, count=counts[w.name]) for w in (*train, *heldout)}
    return {
        "train": tuple(question for world in train for question in asked[world.name]),
        "heldout": tuple(question for world in heldout for question in asked[world.name]),
        "corpora": {w.name: Corpus.of(w.passages, w.name) for w in (*train, *heldout)},
        "worlds": {world.name: world for world in train},
        "words": tuple(name_pool(spec.worlds, seed=seed)),
    }


def _files(spec: FilesTask) -> dict:
    splits = {
        split: load_questions(spec.questions, source=spec.source, corpus=spec.source, split=split)
        for split in (spec.train_split, spec.heldout_split)
    }
    return {
        "train": tuple(splits[spec.train_split]),
        "heldout": tuple(splits[spec.heldout_split][: spec.heldout_questions]),
        "corpora": {spec.source: load_corpus(spec.corpus)},
        "worlds": {},
        "words": (),
    }
