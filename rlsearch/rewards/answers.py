"""Answers against golden answers: exact match, cover match and F1.

The normalisation is that of SQuAD, HotpotQA, FlashRAG and Search-R1. It makes some golden answers empty ("A", "the",
"!"), and an empty text is part of every text; such an answer is compared as it was written, and never by cover match.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence

NORMALISER = "squad-1"
"""Name of the normalisation, to stand beside every score made with it."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Lower case; ASCII punctuation removed with nothing in its place; a, an, the made blanks; blanks collapsed.

    In this order, so that "U.S." is "us" and "rock-and-roll" is one word. Accents and other punctuation stay.
    """
    return " ".join(_ARTICLES.sub(" ", _unpunctuated(text)).split())


def _unpunctuated(text: str) -> str:
    return text.lower().translate(_PUNCTUATION)


def _same(prediction: str, gold: str) -> bool:
    """Equal after normalisation; where that empties ``gold``, with articles kept, then with punctuation kept."""
    for form in (normalise, lambda text: " ".join(_unpunctuated(text).split()), lambda text: text.strip().lower()):
        if form(gold):
            return form(prediction) == form(gold)
    raise ValueError(f"golden answer {gold!r} is blank; question sets are checked for this where they are read")


def exact_match(prediction: str | None, *, golds: Sequence[str]) -> float:
    """1.0 where the prediction equals a golden answer, else 0.0; no prediction (None) equals none.

    Raises:
      ValueError: ``golds`` is empty or holds a blank.
    """
    same = [_same(prediction or "", gold) for gold in _some(golds)]
    return float(prediction is not None and any(same))


def cover_match(prediction: str | None, *, golds: Sequence[str]) -> float:
    """1.0 where a normalised golden answer is part of the normalised prediction, else 0.0 (sub-EM in Search-R1).

    Golden answers that normalise to nothing are left out, since they are part of everything; NaN where none remains.
    """
    usable = [gold for gold in map(normalise, _some(golds)) if gold]
    if not usable:
        return math.nan
    return float(prediction is not None and any(gold in normalise(prediction) for gold in usable))


def f1(prediction: str | None, *, golds: Sequence[str]) -> float:
    """The best F1 over golden answers, between the words of the two normalised texts, counted with multiplicity.

    Where one side is just yes, no or noanswer, or normalises to nothing, only an exact match scores, as in HotpotQA's
    evaluation: "no" is not half of "no idea".
    """
    if prediction is None:
        return exact_match(None, golds=golds)
    return max(_word_f1(prediction, gold) for gold in _some(golds))


def _word_f1(prediction: str, gold: str) -> float:
    sides = normalise(prediction), normalise(gold)
    if any(side in ("yes", "no", "noanswer", "") for side in sides):
        return float(_same(prediction, gold))
    predicted, golden = sides[0].split(), sides[1].split()
    common = sum((Counter(predicted) & Counter(golden)).values())
    return 2 * common / (len(predicted) + len(golden))


def _some(golds: Sequence[str]) -> Sequence[str]:
    if isinstance(golds, str) or not golds:
        raise ValueError(f"golden answers are {golds!r}; needs a sequence of at least one text")
    return golds
