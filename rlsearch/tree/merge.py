"""Equal prefixes of the episodes of a question become one node: what several chains say alike is computed once.

This is the prefix-to-tree construction (P2T) of TEMPO, arXiv 2509.18314, on trees of nodes: a node is cut where the
tokens that go on from it diverge, inside a turn too, so that a group of chains becomes the tree that it samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rlsearch.tree.build import Branch
from rlsearch.tree.forest import NONE


def merge_prefixes(trees: Iterable[tuple[int, Branch]], *, tolerance: float) -> list[tuple[int, Branch]]:
    """Merges the trees of each question, and the branches within them, as far as their tokens are the same.

    Two tokens are the same if all tokens before them on their paths are, and they agree in id, in whether the policy
    sampled them, in the kind, turn, role and version of their nodes, and, where sampled, in the behaviour
    log-probability within ``tolerance``: one that differs by more was sampled in another way, and a merged token keeps
    the number of the first. So a search and an answer that begin alike stay two turns.

    Every episode stays one. Where an episode ends inside what others share, or two are the same to the last token, its
    leaf has no tokens. Notes belong to the last token of their node, which is the same only where the notes are too;
    that of a leaf with notes is never shared, so that notes keep standing at tokens.

    Args:
      trees: (question, root) as ``build`` takes them: chains, or trees that are merged in part. Not changed.
      tolerance: of log-probabilities, in nats.

    Returns:
      Trees by question in the order of their first ones; several of a question where the first tokens differ. Siblings
      keep the order of their first members. Merging again changes nothing.
    """
    by_question: dict[int, list[Branch]] = {}
    for question, root in trees:
        by_question.setdefault(question, []).append(root)
    return [(question, root) for question, roots in by_question.items() for root in _merge(roots, tolerance)]


def _merge(siblings: Sequence[Branch], tolerance: float) -> list[Branch]:
    """Siblings of which no two begin with the same token."""
    alike: list[list[Branch]] = []
    for branch in siblings:
        found = (members for members in alike if _begin_alike(members[0], branch, tolerance))
        members = next(found, None)
        if members is None:
            alike.append([branch])
        else:
            members.append(branch)
    return [_join(members, tolerance) for members in alike]


def _join(members: list[Branch], tolerance: float) -> Branch:
    """One node of what all members begin with, and below it what is left of each."""
    first = members[0]
    if len(members) == 1:
        return replace(first, children=_merge(first.children, tolerance))
    cut = min(_shared(first, other, tolerance) for other in members[1:])
    whole = all(_inner(branch) and len(branch.tokens) == cut for branch in members)
    below = [rest for branch in members for rest in _after(branch, cut)]
    return replace(
        _part(first, slice(0, cut)), children=_merge(below, tolerance), episode=NONE, rewards=(),
        notes=first.notes if whole else {},
    )  # fmt: skip


def _begin_alike(one: Branch, other: Branch, tolerance: float) -> bool:
    if not len(one.tokens) and not len(other.tokens):
        return _inner(one) and _inner(other) and _label(one) == _label(other) and one.notes == other.notes
    return _shared(one, other, tolerance) > 0


def _shared(one: Branch, other: Branch, tolerance: float) -> int:
    """How many first tokens of two nodes are the same."""
    if _label(one) != _label(other):
        return 0
    most = min(len(one.tokens), len(other.tokens))
    count = next((place for place in range(most) if not _same(one, other, place, tolerance)), most)
    if count == len(one.tokens) == len(other.tokens) and _inner(one) and _inner(other) and one.notes == other.notes:
        return count
    return min(count, *(len(branch.tokens) - bool(branch.notes) for branch in (one, other)))


def _same(one: Branch, other: Branch, place: int, tolerance: float) -> bool:
    if one.tokens[place] != other.tokens[place]:
        return False
    return one.logps is None or abs(one.logps[place] - other.logps[place]) <= tolerance


def _label(branch: Branch) -> tuple:
    return branch.kind, branch.turn, branch.role, branch.version, branch.logps is None


def _inner(branch: Branch) -> bool:
    return branch.episode == NONE


def _after(branch: Branch, cut: int) -> list[Branch]:
    """What is left of a branch behind its first ``cut`` tokens: itself, or what is below it if nothing is."""
    if cut == len(branch.tokens) and _inner(branch):
        return branch.children
    return [_part(branch, slice(cut, None))]


def _part(branch: Branch, span: slice) -> Branch:
    logps = None if branch.logps is None else branch.logps[span]
    return replace(branch, tokens=branch.tokens[span], logps=logps)
