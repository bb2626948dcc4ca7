"""Whether an episode is written as asked, apart from whether it is right."""

from __future__ import annotations

import re

from rlsearch.envs.types import State, Status
from rlsearch.tokenization.tags import TAGS

_TAG = re.compile("|".join(re.escape(tag) for tag in TAGS))
_PLAIN = re.compile(r"\s*<(search|answer)>(?P<content>.*?)</\1>\s*", re.DOTALL)
_THOUGHT = re.compile(r"\s*<think>(?P<thought>.*?)</think>", re.DOTALL)


def well_formed_turn(text: str, *, think: bool) -> bool:
    """Whether a turn is exactly a thought (where ``think``) and one search or answer, blanks between, none empty.

    Stricter than ``envs.actions``: no prose beside the tags and no tag inside a part. A thought may be opened by the
    prompt, so a missing first ``<think>`` is a fault here: give the whole turn, what the prompt opened included.
    """
    if think:
        thought = _THOUGHT.match(text)
        if thought is None or not _clean(thought["thought"]):
            return False
        text = text[thought.end() :]
    action = _PLAIN.fullmatch(text)
    return action is not None and _clean(action["content"])


def _clean(content: str) -> bool:
    return bool(content.strip()) and _TAG.search(content) is None


def well_formed(state: State, *, think: bool) -> bool:
    """Whether every turn of a finished episode is well formed and the last one answers."""
    return state.answer is not None and all(well_formed_turn(turn.text, think=think) for turn in state.turns)


def malformed_tags(text: str) -> int:
    """Tags of a turn that close nothing, are never closed, or stand inside another pair. A rise warns of decay."""
    faults, opened = 0, None
    for tag in _TAG.findall(text):
        if opened is None and not tag.startswith("</"):
            opened = tag
        elif opened is not None and tag == f"</{opened[1:]}":
            opened = None
        else:
            faults += 1
    return faults + (opened is not None)


def search_r1_format(state: State, *, correct: bool, think: bool) -> float:
    """Search-R1's graded outcome (its v0.3 scripts): right 1.0, right but badly written 0.8, well written 0.2.

    An answer that is neither right nor well written has 0.1, an episode without an answer 0.
    """
    if state.status is not Status.DONE or state.answer is None:
        return 0.0
    if well_formed(state, think=think):
        return 1.0 if correct else 0.2
    return 0.8 if correct else 0.1
