"""Growing trees of rollouts: the policy writes turns, the environment answers, an expander says where to branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import jax
import numpy as np

from rlsearch.envs import observations
from rlsearch.envs.types import Env, Question, State, Status
from rlsearch.errors import InputError
from rlsearch.models.decoder import Params
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.engine import Engine
from rlsearch.search.types import Retriever
from rlsearch.tokenization.template import Template
from rlsearch.tokenization.types import Tokenizer
from rlsearch.tree.build import Branch
from rlsearch.tree.forest import Kind

KINDS = {"search": Kind.QUERY, "answer": Kind.ANSWER, "invalid": Kind.INVALID}


@dataclass(frozen=True)
class Point:
    """A place where the policy writes next: after the prompt or after an observation.

    Attributes:
      branch: the node that ends here.
      state: the episode so far; a value, so that several rollouts may continue it.
      slot: the cache slot that holds the context.
      length: tokens of the context.
      last: its last token.
    """

    branch: Branch
    state: State
    slot: int
    length: int
    last: int


@dataclass
class Episode:
    """A finished rollout: its leaf and the state it ended in. ``cut`` tells that the context was full."""

    leaf: Branch
    state: State
    cut: bool


@dataclass
class Tree:
    """One tree of rollouts: the root, every point where it can be branched, and what ended in it."""

    question: int
    root: Branch
    points: list[Point]
    episodes: list[Episode] = field(default_factory=list)


@dataclass
class Counts:
    """What growing cost."""

    sampled_tokens: int = 0
    read_tokens: int = 0
    searches: int = 0
    cut_observations: int = 0


@dataclass(frozen=True)
class Scene:
    """What the policy acts in: the environment, the retriever of each corpus, and the text around."""

    env: Env
    retrievers: Mapping[str, Retriever]
    tokenizer: Tokenizer
    template: Template


@dataclass
class _Live:
    """An episode being written."""

    tree: Tree
    number: int  # of the episode, unique in the call
    slot: int
    start: int  # tokens held by the slot
    new: list[int]  # tokens to read next
    branch: Branch
    state: State


class Expander(Protocol):
    """Grows trees and says where they branch.

    ``leaves`` is how many episodes it makes of a question, ``leaves_of_tree`` how many of them share a tree at most.
    """

    leaves: int
    leaves_of_tree: int

    def grow(
        self, grower: Grower, states: Sequence[State], prompts: Sequence[list[int]], rng: np.random.Generator
    ) -> None: ...


class Grower:
    """Writes episodes wave by wave into the slots of an engine."""

    def __init__(self, engine: Engine, scene: Scene, params: Params, *, key, draw: Draw, version: int):
        self.engine, self.scene, self.params = engine, scene, params
        self.key, self.draw, self.version = key, draw, version
        self.counts, self.trees, self.episodes, self.used = Counts(), [], 0, 0

    def plant(self, question: int, state: State, prompt: Sequence[int]) -> Tree:
        """Starts a tree with a prompt; nothing is computed yet."""
        root = Branch(kind=Kind.PROMPT, turn=0, tokens=list(prompt))
        tree = Tree(question, root, [Point(root, state, -1, len(prompt), prompt[-1])])
        self.trees.append(tree)
        return tree

    def claim(self, slots: int) -> None:
        """Checks that the engine has as many slots.

        Raises:
          InputError: it has fewer.
        """
        if slots > self.engine.sampling.slots[-1]:
            raise InputError(
                f"{slots} rollouts at once exceed the {self.engine.sampling.slots[-1]} of config.sampling.slots;"
                f" raise it, or lower the questions of a step"
            )

    def read_prompts(self) -> None:
        """Reads every prompt once, a slot each; trees with equal prompts share the slot."""
        first: dict[tuple[int, ...], int] = {}
        for tree in self.trees:
            first.setdefault(tuple(tree.root.tokens), len(first))
        slots = list(range(len(first)))
        self._write(slots, [list(prompt) for prompt in first], [0] * len(first), [0] * len(first), slots, 0)
        for tree in self.trees:
            tree.points[0] = replace(tree.points[0], slot=first[tuple(tree.root.tokens)])

    def run(self, points: Sequence[tuple[Tree, Point]]) -> None:
        """Writes one episode to its end from each point, all side by side."""
        slots = list(range(self.used, self.used + len(points)))
        if slots[-1] >= self.engine.sampling.slots[-1]:
            raise InputError(
                f"{slots[-1] + 1} rollouts at once exceed the {self.engine.sampling.slots[-1]} of"
                f" config.sampling.slots; raise it, or lower the questions of a step"
            )
        self.engine.copy(source=[point.slot for _, point in points], target=slots)
        self.used += len(points)
        for slot, (tree, point) in zip(slots, points, strict=True):
            if point is tree.points[0]:  # the slot that the prompt was read into may have been overwritten just now
                tree.points[0] = replace(point, slot=slot)
        live = [
            _Live(tree, self.episodes + i, slot, point.length - 1, [point.last], point.branch, point.state)
            for i, (slot, (tree, point)) in enumerate(zip(slots, points, strict=True))
        ]
        self.episodes += len(points)
        turn = 0
        while live:
            live = self._turn(live, turn)
            turn += 1

    def _turn(self, live: list[_Live], turn: int) -> list[_Live]:
        room = [self.engine.sampling.max_context - episode.start - len(episode.new) for episode in live]
        budget = [min(self.engine.sampling.max_turn_tokens, left) for left in room]
        written = self._write(
            [e.slot for e in live],
            [e.new for e in live],
            [e.start for e in live],
            budget,
            [e.number for e in live],
            turn + 1,
        )
        for episode, tokens, logps, count in zip(live, written.tokens, written.logps, written.count, strict=True):
            self._append_turn(episode, tokens[:count].tolist(), logps[:count].tolist())
        self._search([episode for episode in live if episode.state.status is Status.WAIT])
        return [episode for episode in live if self._append_observation(episode)]

    def _write(self, slots, new, start, budget, numbers, turn):
        padded = np.zeros(self.engine.sampling.slots[-1], np.uint32)  # one shape, so that one compilation serves all
        padded[: len(numbers)] = numbers
        keys = _keys(self.key, padded, np.uint32(turn))
        self.counts.read_tokens += sum(map(len, new))
        return self.engine.write(
            self.params, slots=slots, new=new, start=start, budget=budget, key=keys, draw=self.draw
        )

    def _append_turn(self, episode: _Live, tokens: list[int], logps: list[float]) -> None:
        number = len(episode.state.turns)
        episode.state = self.scene.env.act(episode.state, self.scene.tokenizer.decode(tokens))
        kind = KINDS[episode.state.turns[-1].kind]
        branch = Branch(kind=kind, turn=number, tokens=tokens, logps=logps, version=self.version)
        episode.branch.children.append(branch)
        episode.branch = branch
        episode.start += len(episode.new) + len(tokens) - 1
        episode.new = tokens[-1:]
        self.counts.sampled_tokens += len(tokens)

    def _search(self, waiting: list[_Live]) -> None:
        """Asks each corpus for all its queries at once."""
        by_corpus: dict[str, list[_Live]] = {}
        for episode in waiting:
            by_corpus.setdefault(episode.state.question.corpus, []).append(episode)
        for corpus, episodes in by_corpus.items():
            hits = self.scene.retrievers[corpus].search(
                [e.state.calls[0].query for e in episodes], k=episodes[0].state.calls[0].k
            )
            for episode, found in zip(episodes, hits, strict=True):
                episode.state = self.scene.env.observe(episode.state, (found,))
        self.counts.searches += len(waiting)

    def _append_observation(self, episode: _Live) -> bool:
        """Appends what the environment answered; False where the episode has ended."""
        if episode.state.status is Status.DONE:
            self._finish(episode, cut=False)
            return False
        encoded = observations.encode(
            episode.state.turns[-1].observation,
            tokenizer=self.scene.tokenizer,
            limit=self.engine.sampling.max_observation_tokens,
        )
        self.counts.cut_observations += encoded.cut > 0
        length = episode.start + 1 + len(encoded.ids)
        if length >= self.engine.sampling.max_context:
            self._finish(episode, cut=True)
            return False
        branch = Branch(kind=Kind.OBSERVATION, turn=len(episode.state.turns) - 1, tokens=encoded.ids)
        episode.branch.children.append(branch)
        episode.branch = branch
        episode.new = [*episode.new, *encoded.ids]
        episode.tree.points.append(Point(branch, episode.state, episode.slot, length, episode.new[-1]))
        return True

    def _finish(self, episode: _Live, *, cut: bool) -> None:
        state = replace(episode.state, status=Status.DONE, calls=())
        episode.branch.episode = episode.number
        episode.tree.episodes.append(Episode(episode.branch, state, cut))


@jax.jit
def _keys(key, numbers, turn):
    return jax.vmap(lambda number: jax.random.fold_in(jax.random.fold_in(key, number), turn))(numbers)


def grow(grower: Grower, expander: Expander, questions: Sequence[Question], rng: np.random.Generator) -> list[Tree]:
    """Grows the trees of a batch of questions, in their order.

    Raises:
      InputError: more rollouts than the engine has slots, or a question whose prompt leaves no room for a turn or is
        longer than what can be read at once; names it, its length and the limit.
    """
    grower.claim(len(questions) * expander.leaves)
    scene, sampling = grower.scene, grower.engine.sampling
    prompts = [scene.template.prompt_ids(scene.tokenizer, question.text) for question in questions]
    for question, prompt in zip(questions, prompts, strict=True):
        if len(prompt) + sampling.max_turn_tokens > sampling.max_context:
            raise InputError(
                f"question {question.id}: its prompt of {len(prompt)} tokens and one turn of {sampling.max_turn_tokens}"
                f" exceed config.sampling.max_context {sampling.max_context}; raise it or leave the question out"
            )
        if len(prompt) > max(sampling.buckets):
            raise InputError(
                f"question {question.id}: its prompt of {len(prompt)} tokens exceeds the largest of"
                f" config.sampling.buckets {sampling.buckets}; add a larger one or leave the question out"
            )
    expander.grow(grower, [scene.env.start(question) for question in questions], prompts, rng)
    return grower.trees
