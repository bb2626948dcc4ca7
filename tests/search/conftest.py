"""Data that tests of this room share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rlsearch.search.corpus import Corpus, load_corpus
from rlsearch.search.light import LightEncoder, LightSettings
from rlsearch.search.minilm import MiniLMEncoder, MiniLMSettings
from rlsearch.search.minilm_weights import INSTALL, PACKAGE
from tests.search.sentences import passages

MINILM = MiniLMSettings(max_tokens=128, batch_tokens=2048)


@pytest.fixture(scope="session")
def hotpotqa(data_dir) -> Path:
    """The folder of the HotpotQA subset."""
    if not (data_dir / "hotpotqa" / "corpus.jsonl").is_file():
        pytest.skip(f"{data_dir} holds no hotpotqa/corpus.jsonl")
    return data_dir / "hotpotqa"


@pytest.fixture(scope="session")
def hotpotqa_corpus(hotpotqa) -> Corpus:
    return load_corpus(hotpotqa / "corpus.jsonl")


@pytest.fixture(scope="session")
def light() -> LightSettings:
    return LightSettings(width=256, title_weight=3.0, pair_weight=2.0)


@pytest.fixture(scope="session")
def small() -> Corpus:
    return Corpus.of(passages(people=60, seed=0), "small")


@pytest.fixture(scope="session")
def large() -> Corpus:
    return Corpus.of(passages(people=500, seed=1), "large")


@pytest.fixture(scope="session")
def small_encoder(small, light) -> LightEncoder:
    return LightEncoder.fit(small.passages, light)


@pytest.fixture(scope="session")
def large_encoder(large, light) -> LightEncoder:
    return LightEncoder.fit(large.passages, light)


@pytest.fixture(scope="session")
def minilm() -> MiniLMEncoder:
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"needs MiniLM's weights: {INSTALL}")
    return MiniLMEncoder.load(MINILM)
