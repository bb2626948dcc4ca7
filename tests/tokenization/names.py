"""Made-up names and common words, as a synthetic world has them."""

from __future__ import annotations

import random

_COMMON_TEXT = (
    "the of in a is was born city country company where who what which lives works founded by person capital located "
    "mother father friend teacher studied under at for near river north south question answer think need find search "
    "know now so then first next look up information result says that this has been with from employer birthplace "
    "home town leads head chief director she he it they its his her and on to an as"
)
COMMON = _COMMON_TEXT.split()


def names(count: int, *, seed: int) -> list[str]:
    """``count`` different names of two syllables out of forty, such as Karlon."""
    rng = random.Random(seed)
    syllables: set[str] = set()
    while len(syllables) < 40:
        syllables.add(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") + rng.choice("lmnrst"))
    ordered = sorted(syllables)
    pairs = [(first + second).capitalize() for first in ordered for second in ordered]
    return rng.sample(pairs, count)


def sentences(count: int, *, seed: int, names: list[str]) -> list[str]:
    """Lines of about 22 words, a quarter of them names, with tags and punctuation among them."""
    rng = random.Random(seed)
    return [
        "<search>"
        + "".join(" " + rng.choice(names if rng.random() < 0.25 else COMMON) for _ in range(22))
        + rng.choice([".", "?", "'s </search>"])
        for _ in range(count)
    ]
