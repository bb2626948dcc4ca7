"""A text encoder that needs no download and no training: signed random projection of IDF-weighted words and word pairs.

Every word stands for a fixed vector of signs derived from its hash (Charikar, 2002). A text is the sum of its words'
vectors, weighted by inverse document frequency and more where the word stands in the title. A passage also pairs every
title word with every word of its text, a query every word with every other: a pair adds the product of the two sign
vectors (binding, Plate, 1995), again a sign vector and the same in either order. So "mother Karlon" prefers the passage
about Karlon that speaks of a mother to one about somebody else's mother that mentions Karlon. Inner products estimate
the weighted overlap of words and pairs, with an error of about ``width ** -0.5``.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from scipy.sparse import csr_array

from rlsearch.errors import InputError
from rlsearch.search.types import Passage

WORD = re.compile(r"\w+")
TEXTS_AT_ONCE = 1024  # bounds the gathered features to this many texts

Weights = dict[int, float]  # from a word's row, or a pair's number, to its weight in one text


@dataclass(frozen=True)
class LightSettings:
    """What a light encoder is made with."""

    width: int  # numbers in a vector; a multiple of 8
    title_weight: float  # how much more a word weighs in a title than in the text; at least 1
    pair_weight: float  # of a pair, relative to the geometric mean of its two words

    def __post_init__(self):
        if self.width < 8 or self.width % 8:
            raise InputError(f"light encoder: width is {self.width}; it must be a positive multiple of 8")
        if self.title_weight < 1 or self.pair_weight < 0:
            raise InputError(f"light encoder: title_weight is at least 1 and pair_weight at least 0, found {self}")


class LightEncoder:
    """Made by ``fit``; immutable. A word that no fitted passage holds cannot match any, so it is left out.

    Vectors have length 1, or are zero where a text holds no known word.
    """

    def __init__(self, settings: LightSettings, counts: Mapping[str, int], rows: int):
        """``counts[word]`` of ``rows`` passages hold the word.

        A word in ``df`` of N passages weighs ``log(1 + (N - df + 1/2) / (df + 1/2))``, the inverse document frequency
        of BM25 (Robertson and Zaragoza, 2009) kept positive.
        """
        counts = dict(sorted(counts.items()))
        frequency = np.array(list(counts.values()), np.float64)
        self.settings, self.width = settings, settings.width
        self._word_row = {word: row for row, word in enumerate(counts)}
        self._idf = np.log1p((rows - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
        self._signs = _signs(counts, settings.width)
        digest = hashlib.sha256(repr((astuple(settings), rows, counts)).encode()).hexdigest()
        self.name = f"light-{settings.width}-{digest[:16]}"

    @classmethod
    def fit(cls, passages: Sequence[Passage], settings: LightSettings) -> LightEncoder:
        """Counts in how many of ``passages`` each word stands; nothing else is learned."""
        counts = Counter(word for p in passages for word in {*_split(p.title), *_split(p.text)})
        return cls(settings, counts, len(passages))

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors f32[texts, width]."""
        rows = [self._rows(text) for text in texts]
        return self._encode([dict.fromkeys(row, 1.0) for row in rows], [self._pairs(row, row) for row in rows])

    def encode_passages(self, passages: Sequence[Passage]) -> np.ndarray:
        """Unit vectors f32[passages, width]; a word counts once, by the heavier of title and text."""
        rows = [(self._rows(p.title), self._rows(p.text)) for p in passages]
        heavy = self.settings.title_weight
        words = [dict.fromkeys(text, 1.0) | dict.fromkeys(title, heavy) for title, text in rows]
        return self._encode(words, [self._pairs(title, text) for title, text in rows])

    def _encode(self, words: Sequence[Weights], pairs: Sequence[Weights]) -> np.ndarray:
        out = np.zeros((len(words), self.width), np.float32)
        for start in range(0, len(words), TEXTS_AT_ONCE):
            part = slice(start, start + TEXTS_AT_ONCE)
            total = self._project_words(words[part]) + self.settings.pair_weight * self._project_pairs(pairs[part])
            length = np.linalg.norm(total, axis=1, keepdims=True)
            out[part] = total / np.where(length > 0, length, 1)
        return out

    def _rows(self, text: str) -> list[int]:
        return [row for row in map(self._word_row.get, _split(text)) if row is not None]

    def _pairs(self, left: Sequence[int], right: Sequence[int]) -> Weights:
        """Every unordered pair of two words, one of each side; pair (a < b) is the number a * words + b."""
        size = len(self._word_row)
        left, right = set(left), set(right)
        return {(a * size + b if a < b else b * size + a): 1.0 for a in left for b in right if a != b}

    def _project_words(self, texts: Sequence[Weights]) -> np.ndarray:
        features, weights = _sparse(texts)
        return weights @ (self._signs[features] * self._idf[features, None])

    def _project_pairs(self, texts: Sequence[Weights]) -> np.ndarray:
        features, weights = _sparse(texts)
        a, b = np.divmod(features, len(self._word_row) or 1)
        return weights @ (self._signs[a] * self._signs[b] * np.sqrt(self._idf[a] * self._idf[b])[:, None])


def _split(text: str) -> list[str]:
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _signs(words: Iterable[str], width: int) -> np.ndarray:
    """i8[words, width] of -1 and 1, from SHAKE-128 of each word: the same in every process and on every machine."""
    data = b"".join(hashlib.shake_128(word.encode()).digest(width // 8) for word in words)
    bits = np.unpackbits(np.frombuffer(data, np.uint8)).reshape(-1, width)
    return bits.view(np.int8) * np.int8(2) - np.int8(1)


def _sparse(texts: Sequence[Weights]) -> tuple[np.ndarray, csr_array]:
    """The features that occur, i64[features], and their weights, f32[texts, features]."""
    keys = np.array([key for text in texts for key in text], np.int64)
    weights = np.array([weight for text in texts for weight in text.values()], np.float32)
    ends = np.cumsum([0, *map(len, texts)])
    features, columns = np.unique(keys, return_inverse=True)
    return features, csr_array((weights, columns, ends), shape=(len(texts), len(features)))
