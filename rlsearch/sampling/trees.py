"""Trees of rollouts while they grow: where they may be branched, and what ended in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlsearch.envs.types import State
from rlsearch.tree.build import Branch
from rlsearch.tree.forest import NONE


@dataclass(frozen=True)
class Point:
    """A place where the policy may write next.

    Attributes:
      branch: the node that ends here.
      state: the episode so far; a value, so that several rollouts may continue it.
      episode: number of the rollout that came by first.
      written: tokens of the turn under way that stand before this place; empty where a turn begins.
    """

    branch: Branch
    state: State
    episode: int
    written: tuple[int, ...] = ()

    @property
    def turn(self) -> int:
        """Turns finished before it."""
        return len(self.state.turns)


@dataclass
class Episode:
    """A finished rollout.

    Attributes:
      ends: its contexts in their order: the tree of each, and the leaf that it ends in.
      state: what it ended in.
      cut: whether its context was full.
      number: unique among the rollouts of a call.
    """

    ends: list[tuple[Tree, Branch]]
    state: State
    cut: bool
    number: int

    @property
    def leaf(self) -> Branch:
        """Where the last context ends."""
        return self.ends[-1][1]

    @property
    def nodes(self) -> list[Branch]:
        """All that the episode went through, one context after the other."""
        return [node for tree, leaf in self.ends for node in tree.path(leaf)]


@dataclass
class Tree:
    """One tree of rollouts: the root, every place where it can be branched, and what ended in it.

    Attributes:
      question: index of its question.
      root: its prompt.
      points: in the order of the rollouts that came by, and of their turns; the first one is behind the prompt.
      episodes: that ended in it, by number.
      continues: number of the rollout whose later context this is, else NONE; a later context is not branched.
      entropies: of the distributions that the tokens of a sampled node were drawn from, in nats, by the node's id.
    """

    question: int
    root: Branch
    points: list[Point] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    continues: int = NONE
    entropies: dict[int, list[float]] = field(default_factory=dict)
    _above: dict[int, Branch] = field(default_factory=dict)
    _born: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self):
        waiting = [self.root]
        while waiting:
            parent = waiting.pop()
            waiting += parent.children
            for child in parent.children:
                self._above[id(child)] = parent
                self._born[id(child)] = (child.episode, len(self._born))

    def append(self, parent: Branch, child: Branch, *, episode: int) -> Branch:
        """Adds a node below another one, written or read by a rollout; returns it."""
        parent.children.append(child)
        self._above[id(child)] = parent
        self._born[id(child)] = (episode, len(self._born))
        return child

    def path(self, branch: Branch) -> list[Branch]:
        """The nodes from the root to one of them."""
        found = [branch]
        while found[-1] is not self.root:
            found.append(self._above[id(found[-1])])
        return found[::-1]

    def context(self, branch: Branch) -> list[int]:
        """All tokens from the root to the end of a node."""
        return [token for node in self.path(branch) for token in node.tokens]

    def split(self, branch: Branch, at: int) -> Branch:
        """Cuts a sampled node before its token ``at``; returns the new node above, which holds the first ones.

        The node itself stays what is below, so that it still ends what it ended.
        """
        if not 0 < at < len(branch.tokens) or branch.logps is None:
            raise ValueError(f"a node of {len(branch.tokens)} tokens is not cut before its token {at}")
        parent = self._above[id(branch)]
        first = Branch(
            kind=branch.kind, turn=branch.turn, tokens=branch.tokens[:at], logps=branch.logps[:at], children=[branch],
            version=branch.version, role=branch.role,
        )  # fmt: skip
        parent.children[next(i for i, child in enumerate(parent.children) if child is branch)] = first
        branch.tokens, branch.logps = branch.tokens[at:], branch.logps[at:]
        entropies = self.entropies[id(branch)]
        self.entropies[id(first)], self.entropies[id(branch)] = entropies[:at], entropies[at:]
        self._above[id(first)], self._above[id(branch)] = parent, first
        self._born[id(first)] = self._born[id(branch)]
        return first

    def settle(self) -> None:
        """Puts everything in the order of the rollouts, whatever order they ended in."""
        self.points.sort(key=lambda point: (point.episode, point.turn, len(point.written)))
        self.episodes.sort(key=lambda episode: episode.number)
        waiting = [self.root]
        while waiting:
            branch = waiting.pop()
            branch.children.sort(key=lambda child: self._born[id(child)][0])
            waiting += branch.children

    def prune(self) -> int:
        """Removes what leads to no episode, and points in it; returns how many sampled tokens that were."""
        lost, kept, waiting = _prune(self.root), set(), [self.root]
        while waiting:
            branch = waiting.pop()
            kept.add(id(branch))
            waiting += branch.children
        self.points = [point for point in self.points if id(point.branch) in kept]
        return lost


def _prune(branch: Branch) -> int:
    lost = 0
    for child in list(branch.children):
        lost += _prune(child)
        if not child.children and child.episode == NONE:
            branch.children = [one for one in branch.children if one is not child]
            lost += len(child.tokens) if child.logps is not None else 0
    return lost
