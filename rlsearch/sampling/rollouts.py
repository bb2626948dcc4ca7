"""Rollouts: many episodes written at once, each going on as soon as it can.

Slots that are done are handed on at once, tools are asked while others write, and what a rollout draws depends on its
number and turn alone: not on its slot, its neighbours, or the order in which tools answer.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import jax
import numpy as np
from jaxtyping import Array

from rlsearch.envs import observations
from rlsearch.envs.types import Ask, Env, Piece, State, Status
from rlsearch.models.decoder import Params
from rlsearch.sampling.calls import Desk
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.engine import Engine, Writing
from rlsearch.sampling.menu import Menu, Spelling
from rlsearch.sampling.slots import Slots
from rlsearch.sampling.trees import Episode, Point, Tree
from rlsearch.search.types import Retriever
from rlsearch.tokenization.template import Template
from rlsearch.tokenization.types import Tokenizer
from rlsearch.tree.build import Branch
from rlsearch.tree.forest import Kind

POLICY = "policy"
"""The name of the parameters that are trained."""

START = "start"
"""The name of the parameters from before reinforcement learning."""

KINDS = {"search": Kind.QUERY, "answer": Kind.ANSWER, "invalid": Kind.INVALID}


@dataclass(frozen=True)
class Scene:
    """What the policy acts in: the environment, the tools by name and corpus, and the text around.

    ``writers`` says whose parameters write as each role of the environment: POLICY's or START's.
    """

    env: Env
    tools: Mapping[str, Mapping[str, Retriever]]
    tokenizer: Tokenizer
    template: Template
    writers: Mapping[str, str]


@dataclass
class Spent:
    """What rollouts cost: tokens and turns that were written, and calls of tools."""

    tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0


@dataclass(frozen=True)
class Start:
    """A rollout to be written.

    Attributes:
      tree: where it grows.
      point: the place that it begins at.
      turns: turns that it writes before it pauses; None writes to the end of the episode.
      writer: name of the parameters that write for the policy, in place of the scene's; None for those.
      script: turns that are put in place of the first ones, and not sampled.
    """

    tree: Tree
    point: Point
    turns: int | None = None
    writer: str | None = None
    script: tuple[str, ...] = ()


@dataclass
class _Live:
    """A rollout being written."""

    number: int
    start: Start
    tree: Tree
    branch: Branch
    state: State
    context: list[int]
    given: tuple[int, ...]  # tokens of the turn under way that stand before the first one written
    count: int = 0  # turns written by this rollout
    ends: list[tuple[Tree, Branch]] = field(default_factory=list)
    ask: Ask | None = None
    ending: list[int] = field(default_factory=list)
    name: str = ""  # of the parameters that write
    slot: int | None = None  # None while it waits for one
    writing: Writing | None = None


class Rollouts:
    """Writes rollouts into the slots of an engine.

    Args:
      engine: what writes.
      scene: what the policy acts in.
      params: parameters by name. Tokens of "policy" are sampled; those of any other name count as read.
      key: of all draws.
      draw: how tokens are drawn.
      version: of the policy.
    """

    def __init__(
        self, engine: Engine, scene: Scene, params: Mapping[str, Params], *, key: Array, draw: Draw, version: int
    ):
        self.engine, self.scene, self.params = engine, scene, params
        self.key, self.draw, self.version = key, draw, version
        self.slots, self.desk = Slots(engine, params), Desk(scene.tools, engine.sampling.calls)
        self.spent: dict[int, Spent] = {}
        self.cut_observations = 0
        self.continuations: list[Tree] = []  # contexts after the first ones, in the order of their rollouts
        self._number = 0
        self._spell = functools.cache(self._spelled)
        self._waiting: list[_Live] = []
        self._live: dict[int, _Live] = {}

    def run(self, starts: Sequence[Start]) -> None:
        """Writes all of them to their ends, as many at once as there are slots."""
        for start in starts:
            tree, point = start.tree, start.point
            context = tree.context(point.branch)
            live = _Live(self._number, start, tree, point.branch, point.state, context, point.written)
            self._number += 1
            if self._play(live) and self._prepare(live):
                self._waiting.append(live)
        while self._waiting or self._live:
            self._admit()
            self._write()
            self._hear()
        for tree in {id(start.tree): start.tree for start in starts}.values():
            tree.settle()
        self.continuations.sort(key=lambda tree: tree.continues)

    def _admit(self) -> None:
        """Gives free slots to those that wait for one, the oldest first."""
        self._waiting.sort(key=lambda live: live.number)
        count = min(self.slots.free, len(self._waiting))
        entering, self._waiting = self._waiting[:count], self._waiting[count:]
        if not entering:
            return
        for live, slot in zip(entering, self.slots.admit([(x.name, x.context) for x in entering]), strict=True):
            live.slot = slot
            self._live[live.number] = live
        self._begin(entering)

    def _write(self) -> None:
        """Writes a chunk in every slot that has a turn under way, and ends the turns that are finished."""
        writing = [live for live in self._live.values() if live.writing is not None]
        for name in sorted({live.name for live in writing}):
            self.engine.write(self.params[name], [live.writing for live in writing if live.name == name])
        ended = [live for live in writing if live.writing.finished]
        for live in ended:
            self._end_turn(live)
        self._resume([live for live in ended if live.state.status is not Status.WAIT])

    def _hear(self) -> None:
        """Hands the results of calls to those that asked; waits for one where there is nothing else to do."""
        busy = any(live.writing is not None for live in self._live.values())
        answered = self.desk.answered(wait=not busy and not (self._waiting and self.slots.free))
        lives = [self._live[number] for number in sorted(answered)]
        for live in lives:
            live.state = self.scene.env.observe(live.state, answered[live.number])
        self._resume(lives)

    def _resume(self, lives: Sequence[_Live]) -> None:
        """Goes on with rollouts whose turn is over, in their slots where these are still of use."""
        staying = []
        for live in lives:
            tree, name = live.tree, live.name
            going = self._append_observation(live) and self._prepare(live)
            if going and live.tree is tree and live.name == name:
                staying.append(live)
                continue
            self.slots.release(live.slot)
            live.slot = None
            del self._live[live.number]
            if going:
                self._waiting.append(live)
        if staying:
            self.slots.extend([live.slot for live in staying], [live.context for live in staying])
            self._begin(staying)

    def _play(self, live: _Live) -> bool:
        """Plays the script of a rollout; False where the episode is over with it."""
        for text in live.start.script:
            tokens = self.scene.tokenizer.encode_control(text)
            self._act(live, text, Branch(kind=Kind.STEP, turn=len(live.state.turns), tokens=tokens))
            if live.state.status is Status.WAIT:
                live.state = self.scene.env.observe(live.state, self.desk.answered(wait=True)[live.number])
            if not self._append_observation(live):
                return False
        return True

    def _prepare(self, live: _Live) -> bool:
        """Looks up how the next turn is written; False where the context has no room for it."""
        env, tokenizer = self.scene.env, self.scene.tokenizer
        live.ask = ask = env.ask(live.state)
        own = live.start.writer is not None and ask.role == env.roles[0]
        live.name = live.start.writer if own else self.scene.writers[ask.role]
        live.ending = tokenizer.encode_control(ask.ending) if ask.ending else []
        if ask.opening and not live.given:
            opening = Branch(
                kind=Kind.OBSERVATION, turn=len(live.state.turns), tokens=tokenizer.encode_control(ask.opening)
            )
            self._add(live, opening)
        if self._budget(live) < 1:
            self._finish(live, cut=True)
            return False
        return True

    def _budget(self, live: _Live) -> int:
        """Tokens that the turn may still have."""
        sampling = self.engine.sampling
        most = min(sampling.max_turn_tokens, live.ask.tokens or sampling.max_turn_tokens) - len(live.given)
        return min(most, sampling.max_context - len(live.context) - len(live.ending))

    def _begin(self, lives: Sequence[_Live]) -> None:
        """Begins the turns of rollouts whose slots hold their contexts."""
        stops, size = self.engine.stops, self.engine.sampling.slots[-1]
        which = np.zeros((2, size), np.uint32)  # one shape, so that one compilation serves all
        which[:, : len(lives)] = np.transpose([(live.number, live.count + 1) for live in lives])
        for live, key in zip(lives, np.asarray(_keys(self.key, *which)), strict=False):
            menu = self._spell(live.ask.menu) if live.ask.menu else None
            live.writing = Writing(
                slot=live.slot, length=len(live.context) - 1, last=live.context[-1], key=key, draw=self.draw,
                state=0 if menu else stops.after(stops.starts[live.ask.stops], live.given),
                left=self._budget(live), menu=menu, step=len(live.given),
            )  # fmt: skip

    def _spelled(self, strings: tuple[str, ...]) -> Menu:
        return self._spelling.menu(strings)

    @functools.cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self.scene.tokenizer.token_bytes(), self.scene.tokenizer.eos_ids)

    def _end_turn(self, live: _Live) -> None:
        """Adds what was written to the tree, and lets the environment act on it."""
        writing, ask = live.writing, live.ask
        ending = [] if writing.stopped else live.ending
        text = ask.opening + self.scene.tokenizer.decode([*live.given, *writing.tokens]) + ask.ending * bool(ending)
        sampled = live.name == POLICY
        branch = Branch(
            kind=Kind.STEP, turn=len(live.state.turns), tokens=writing.tokens,
            logps=writing.logps if sampled else None, version=self.version if sampled else 0,
            role=self.scene.env.roles.index(ask.role),
        )  # fmt: skip
        live.tree.entropies[id(branch)] = writing.entropies
        live.writing, live.given = None, ()
        spent = self._spent(live)
        spent.tokens, spent.model_calls = spent.tokens + len(writing.tokens), spent.model_calls + 1
        live.count += 1
        self._act(live, text, branch)
        self.slots.hold(live.slot, live.context)
        if ending:
            self._add(live, Branch(kind=Kind.OBSERVATION, turn=branch.turn, tokens=ending))

    def _act(self, live: _Live, text: str, branch: Branch) -> None:
        """Takes a turn that stands in ``branch``; its calls go to the desk."""
        live.state = self.scene.env.act(live.state, text)
        branch.kind = KINDS.get(live.state.turns[-1].kind, Kind.STEP)
        self._add(live, branch)
        if live.state.status is Status.WAIT:
            self.desk.ask(live.number, live.state.question.corpus, live.state.calls)
            self._spent(live).tool_calls += len(live.state.calls)

    def _append_observation(self, live: _Live) -> bool:
        """Appends what the environment answered; False where the rollout is over or pauses."""
        if live.state.status is Status.DONE:
            self._finish(live, cut=False)
            return False
        turn = live.state.turns[-1]
        if turn.restart is not None:
            self._restart(live, turn.restart)
        else:
            ids = self._encoded(turn.observation)
            if len(live.context) + len(ids) >= self.engine.sampling.max_context:
                self._finish(live, cut=True)
                return False
            if ids:
                self._add(live, Branch(kind=Kind.OBSERVATION, turn=len(live.state.turns) - 1, tokens=ids))
        if live.tree is live.start.tree:
            live.tree.points.append(Point(live.branch, live.state, live.number))
        return live.start.turns is None or live.count < live.start.turns

    def _restart(self, live: _Live, pieces: Sequence[Piece]) -> None:
        """Ends the context and begins another one: the question's prompt and ``pieces``."""
        self._end_context(live)
        prompt = self.scene.template.prompt_ids(self.scene.tokenizer, live.state.question.text)
        root = Branch(kind=Kind.PROMPT, turn=len(live.state.turns), tokens=[*prompt, *self._encoded(pieces)])
        live.tree = Tree(live.tree.question, root, continues=live.number)
        live.branch, live.context = root, list(root.tokens)
        self.continuations.append(live.tree)

    def _encoded(self, pieces: Sequence[Piece]) -> list[int]:
        limit = self.engine.sampling.max_observation_tokens
        encoded = observations.encode(pieces, tokenizer=self.scene.tokenizer, limit=limit)
        self.cut_observations += encoded.cut > 0
        return encoded.ids

    def _finish(self, live: _Live, *, cut: bool) -> None:
        self._end_context(live)
        state = replace(live.state, status=Status.DONE, calls=())
        live.start.tree.episodes.append(Episode(live.ends, state, cut, live.number))

    def _end_context(self, live: _Live) -> None:
        if live.branch is live.start.point.branch:  # others may go on from here: a leaf of its own
            self._add(live, Branch(kind=Kind.OBSERVATION, turn=len(live.state.turns), tokens=[]))
        live.branch.episode = live.number
        live.ends.append((live.tree, live.branch))

    def _add(self, live: _Live, branch: Branch) -> None:
        live.branch = live.tree.append(live.branch, branch, episode=live.number)
        live.context += branch.tokens

    def _spent(self, live: _Live) -> Spent:
        return self.spent.setdefault(live.tree.question, Spent())


@jax.jit
def _keys(key, numbers, turns):
    return jax.vmap(
        lambda number, turn: jax.random.key_data(jax.random.fold_in(jax.random.fold_in(key, number), turn))
    )(numbers, turns)
