"""Building forests from branches on the host.

Branching rollouts are trees of ``Branch`` already. An episode on its own is a ``chain``; a group of episodes that share
their prompt and nothing else is a ``group`` of them; ``merge.merge_prefixes`` shares whatever else is equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rlsearch.tree.forest import NONE, Forest, Kind, with_paths


@dataclass
class Branch:
    """A node under construction: its tokens and the branches that continue it.

    ``logps`` holds the behaviour log-probabilities of a sampled node, and is None where the policy wrote nothing.
    ``rewards`` and ``episode`` are set where an episode ends, or one of its contexts. ``notes`` are values by name that
    some method reads at this node; a node without a note has 0 in its column.
    """

    kind: Kind
    turn: int
    tokens: Sequence[int]
    logps: Sequence[float] | None = None
    children: list[Branch] = field(default_factory=list)
    episode: int = NONE
    rewards: Sequence[float] = ()
    version: int = 0
    role: int = 0
    notes: dict[str, float] = field(default_factory=dict)


def chain(parts: Sequence[Branch], *, episode: int, rewards: Sequence[float]) -> Branch:
    """An episode: its parts one below the other, from the prompt to where it ends; returns the first.

    Raises:
      ValueError: there is no part.
    """
    if not parts:
        raise ValueError("an episode has at least its prompt")
    below = replace(parts[-1], children=[], episode=episode, rewards=rewards)
    for part in reversed(parts[:-1]):
        below = replace(part, children=[below], episode=NONE, rewards=())
    return below


def group(prompt: Branch, responses: Sequence[Branch]) -> Branch:
    """A prompt with the episodes that answer it: chains or trees that begin after the prompt."""
    return replace(prompt, children=list(responses), episode=NONE, rewards=())


def build(trees: Sequence[tuple[int, Branch]], *, terms: int, notes: Sequence[str] = ()) -> Forest:
    """Flattens trees, each with the index of its question, into one forest with ``terms`` reward columns.

    It has a column for each of ``notes``, and for every other note that some branch has. Episodes are numbered anew,
    0 to E - 1 in the order in which their first leaves stand; leaves of one episode, in one tree or several, keep one
    number. So an episode's number is below the number of nodes.

    Raises:
      ValueError: a sampled node whose log-probabilities do not match its tokens, or a leaf without an episode.
    """
    flat = _Flat(terms, notes)
    for question, root in trees:
        flat.add(root, question=question, parent=NONE, prev=NONE, position=0)
    return flat.forest()


class _Flat:
    """Columns of tokens and nodes, filled in depth-first order."""

    def __init__(self, terms: int, notes: Sequence[str]):
        self.terms, self.names = terms, notes
        self.token_id, self.position, self.prev, self.behavior_logp = [], [], [], []
        self.nodes: list[list[int]] = []
        self.spans: list[list[int]] = []  # of each node: first token, end of its own, end of those below
        self.rewards: list[Sequence[float]] = []
        self.notes: list[dict[str, float]] = []
        self.episodes: dict[int, int] = {NONE: NONE}

    def add(self, branch: Branch, *, question: int, parent: int, prev: int, position: int) -> None:
        index, first, count = len(self.nodes), len(self.token_id), len(branch.tokens)
        self._check(branch, index)
        sampled = branch.logps is not None
        self.nodes.append(
            [
                0,
                parent,
                branch.kind,
                branch.turn,
                question,
                self.episodes.setdefault(branch.episode, len(self.episodes) - 1),
                branch.role,
                branch.version,
                count * sampled,
            ]
        )
        self.spans.append([first, first + count, 0])
        self.rewards.append(branch.rewards if len(branch.rewards) else [0.0] * self.terms)
        self.notes.append(branch.notes)
        self.token_id.extend(branch.tokens)
        self.position.extend(range(position, position + count))
        self.prev.extend([prev, *range(first, first + count - 1)][:count])
        self.behavior_logp.extend(branch.logps if sampled else [0.0] * count)
        for child in branch.children:
            last = first + count - 1 if count else prev
            self.add(child, question=question, parent=index, prev=last, position=position + count)
        self.nodes[index][0] = len(self.nodes)
        self.spans[index][2] = len(self.token_id)

    def _check(self, branch: Branch, index: int) -> None:
        if branch.logps is not None and len(branch.logps) != len(branch.tokens):
            raise ValueError(
                f"node {index}: {len(branch.tokens)} sampled tokens with {len(branch.logps)} log-probabilities"
            )
        if (not branch.children) != (branch.episode != NONE):
            raise ValueError(f"node {index}: a leaf needs an episode and an inner node must have none")
        if len(branch.rewards) not in (0, self.terms):
            raise ValueError(f"node {index}: {len(branch.rewards)} rewards, the forest has {self.terms} terms")

    def forest(self) -> Forest:
        table = np.asarray(self.nodes, np.int32).reshape(-1, 9)
        spans = np.asarray(self.spans, np.int32).reshape(-1, 3)
        node = np.repeat(np.arange(len(table), dtype=np.int32), spans[:, 1] - spans[:, 0])
        names = ("end", "parent", "kind", "turn", "question", "episode", "role", "version", "tokens")
        columns = dict(zip(names, table.T.copy(), strict=True))
        columns["rewards"] = np.asarray(self.rewards, np.float32).reshape(len(table), self.terms)
        columns["notes"] = {
            name: np.asarray([notes.get(name, 0.0) for notes in self.notes], np.float32)
            for name in sorted({*self.names, *(name for notes in self.notes for name in notes)})
        }
        return Forest(
            token_id=np.asarray(self.token_id, np.int32),
            token_node=node,
            position=np.asarray(self.position, np.int32),
            prev=np.asarray(self.prev, np.int32),
            token_end=spans[node, 2],
            sampled=table[node, 8] > 0,
            behavior_logp=np.asarray(self.behavior_logp, np.float32),
            nodes=with_paths(columns),
        )
