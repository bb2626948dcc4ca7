from __future__ import annotations

import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.exact import QUERIES_AT_ONCE, ExactRetriever
from rlsearch.search.types import Passage
from tests.search.sentences import questions


class Table:
    """An encoder that looks its vectors up."""

    name = "table"
    width = 2

    def __init__(self, vectors):
        self.vectors = vectors

    def encode_queries(self, texts):
        return np.array([self.vectors[text] for text in texts], np.float32).reshape(-1, 2)

    def encode_passages(self, passages):
        return self.encode_queries([passage.text for passage in passages])


def corpus_of(*texts):
    return Corpus.of([Passage(str(row), "", text) for row, text in enumerate(texts)], "table")


def test_ranks_by_inner_product_and_ties_by_row():
    encoder = Table({"q": (1, 0), "low": (0.1, 1), "high": (0.9, 0), "same": (0.5, 0), "also": (0.5, 1)})
    retriever = ExactRetriever.build(corpus_of("low", "same", "also", "high"), encoder)
    (hits,) = retriever.search(["q"], k=4)
    assert [passage.text for passage in hits.passages] == ["high", "same", "also", "low"]
    assert hits.scores == pytest.approx((0.9, 0.5, 0.5, 0.1))


def test_many_equal_scores_rank_by_row():
    texts = [f"{'ab'[row % 2]}{row}" for row in range(400)]
    encoder = Table({"q": (1, 0)} | {text: (0.5 if text[0] == "a" else 0.1, 0) for text in texts})
    (hits,) = ExactRetriever.build(corpus_of(*texts), encoder).search(["q"], k=400)
    assert [int(passage.id) for passage in hits.passages] == [*range(0, 400, 2), *range(1, 400, 2)]


def test_more_hits_than_passages_are_never_invented():
    retriever = ExactRetriever.build(
        corpus_of("a", "b", "c"), Table({"q": (1, 0), "a": (0, 1), "b": (1, 1), "c": (0, 0)})
    )
    (hits,) = retriever.search(["q"], k=10)
    assert sorted(passage.text for passage in hits.passages) == ["a", "b", "c"]
    assert len(hits.scores) == 3


def test_each_query_is_answered_as_if_alone(small, small_encoder):
    retriever = ExactRetriever.build(small, small_encoder)
    asked = questions(small.passages) * 2
    assert len(asked) > QUERIES_AT_ONCE
    together = retriever.search(asked, k=3)
    assert len(together) == len(asked)
    for row in (0, 5, QUERIES_AT_ONCE, len(asked) - 1):
        (alone,) = retriever.search([asked[row]], k=3)
        assert alone.passages == together[row].passages
        assert alone.scores == pytest.approx(together[row].scores)
    assert retriever.search([], k=3) == []


def test_bad_vectors_and_k_are_refused():
    encoder = Table({"a": (0, 1), "b": (float("nan"), 1)})
    with pytest.raises(InputError, match=r"passage '1' .row 1 of table. is not finite"):
        ExactRetriever.build(corpus_of("a", "b"), encoder)
    with pytest.raises(InputError, match=r"shape \(1, 2\), not \(2, 2\)"):
        ExactRetriever(corpus_of("a", "b"), encoder, np.zeros((1, 2)))
    with pytest.raises(InputError, match="k is 0"):
        ExactRetriever.build(corpus_of("a"), encoder).search(["a"], k=0)
