"""Growing trees of rollouts: an expander chooses places, rollouts are written from there, until it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Array

from rlsearch.envs.types import Env, Question, State
from rlsearch.errors import InputError
from rlsearch.models.decoder import Params
from rlsearch.sampling.budget import BudgetConfig
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.engine import Engine, SamplingConfig
from rlsearch.sampling.rollouts import Rollouts, Scene, Spent, Start
from rlsearch.sampling.trees import Episode, Point, Tree
from rlsearch.tree.build import Branch
from rlsearch.tree.forest import Kind


@dataclass(frozen=True)
class Pick:
    """``count`` rollouts from one place; see ``Start`` for the others."""

    tree: Tree
    point: Point
    count: int = 1
    turns: int | None = None
    writer: str | None = None
    script: tuple[str, ...] = ()


@dataclass(frozen=True)
class Growth:
    """What an expander sees.

    Attributes:
      trees: of all questions, in the order in which they were planted; those of a question stand together.
      questions: the questions.
      rng: the only source of chance.
      score: what a finished episode has earned.
      round: how often the expander has chosen already.
    """

    trees: list[Tree]
    questions: Sequence[Question]
    rng: np.random.Generator
    score: Callable[[State], float]
    round: int

    def of_question(self) -> list[list[Tree]]:
        """The trees of each question."""
        return [[tree for tree in self.trees if tree.question == q] for q in range(len(self.questions))]


class Expander(Protocol):
    """Says where trees branch.

    ``trees`` are planted for every question; ``leaves`` is how many episodes it makes of a question at most,
    ``leaves_of_tree`` how many of them share a tree, ``cuts`` how many nodes of a path it cuts in two at most.
    """

    trees: int
    leaves: int
    leaves_of_tree: int
    cuts: int

    def choose(self, growth: Growth) -> list[Pick]:
        """The rollouts to write next, from places of ``growth.trees``; none where the trees are done.

        What is chosen depends on its arguments alone.
        """
        ...


@dataclass
class Grown:
    """What growing brought, and what it cost.

    Attributes:
      trees: in the order of the questions; behind those of a question the later contexts of episodes that have several.
      spent: of each question.
      left_out: rollouts of each question that its budget had no room for.
      read_tokens: that were read into slots, and not written there or copied from others.
      copied_tokens: that were copied from a slot that had read them.
      cut_observations: that were longer than what is shown.
      failed_calls: calls of tools that brought nothing.
      pruned_tokens: that were written and lead to no episode.
    """

    trees: list[Tree]
    spent: list[Spent]
    left_out: list[int]
    read_tokens: int
    copied_tokens: int
    cut_observations: int
    failed_calls: int
    pruned_tokens: int

    @property
    def sampled_tokens(self) -> int:
        return sum(spent.tokens for spent in self.spent)

    @property
    def episodes(self) -> list[Episode]:
        """Of all trees, in their order."""
        return [episode for tree in self.trees for episode in tree.episodes]


@dataclass(frozen=True)
class Grower:
    """What grows trees: see ``Rollouts`` for the first ones.

    ``score`` is what a finished episode has earned, for expanders that ask; ``budget`` None sets no limit.
    """

    engine: Engine
    scene: Scene
    params: Mapping[str, Params]
    key: Array
    draw: Draw
    version: int
    score: Callable[[State], float]
    budget: BudgetConfig | None = None


def grow(grower: Grower, expander: Expander, questions: Sequence[Question], rng: np.random.Generator) -> Grown:
    """Grows the trees of a batch of questions.

    Raises:
      InputError: a question whose prompt leaves no room for a turn; names it, its length and the limit.
    """
    rollouts = Rollouts(
        grower.engine, grower.scene, grower.params, key=grower.key, draw=grower.draw, version=grower.version
    )
    trees = [tree for i, question in enumerate(questions) for tree in _plant(grower, expander.trees, i, question)]
    ledger = _Ledger(grower.budget, grower.engine.sampling, grower.scene.env, rollouts, [0] * len(questions))
    number = 0
    while picks := expander.choose(Growth(trees, questions, rng, grower.score, number)):
        starts = ledger.afforded(picks)
        if not starts:
            break
        rollouts.run(starts)
        number += 1
    return Grown(
        trees=sorted([*trees, *rollouts.continuations], key=lambda tree: tree.question),
        spent=[rollouts.spent.get(i, Spent()) for i in range(len(questions))],
        left_out=ledger.left_out,
        read_tokens=rollouts.slots.read_tokens,
        copied_tokens=rollouts.slots.copied_tokens,
        cut_observations=rollouts.cut_observations,
        failed_calls=rollouts.desk.failures,
        pruned_tokens=sum(tree.prune() for tree in trees),
    )


def _plant(grower: Grower, count: int, index: int, question: Question) -> list[Tree]:
    """The trees of a question, nothing in them but the prompt."""
    scene, sampling = grower.scene, grower.engine.sampling
    prompt = scene.template.prompt_ids(scene.tokenizer, question.text)
    if len(prompt) + sampling.max_turn_tokens > sampling.max_context:
        raise InputError(
            f"question {question.id}: its prompt of {len(prompt)} tokens and one turn of {sampling.max_turn_tokens}"
            f" exceed config.sampling.max_context {sampling.max_context}; raise it or leave the question out"
        )
    trees = [Tree(index, Branch(kind=Kind.PROMPT, turn=0, tokens=list(prompt))) for _ in range(count)]
    for tree in trees:
        tree.points.append(Point(tree.root, scene.env.start(question), -1))
    return trees


@dataclass
class _Ledger:
    """Begins no rollout that could take a question beyond its budget."""

    budget: BudgetConfig | None
    sampling: SamplingConfig
    env: Env
    rollouts: Rollouts
    left_out: list[int]

    def afforded(self, picks: Sequence[Pick]) -> list[Start]:
        """The rollouts of ``picks``, in their order, that the budgets have room for whatever they do."""
        starts, reserved = [], {}
        for pick in picks:
            for _ in range(pick.count):
                question = pick.tree.question
                if self.budget is not None:
                    spent = getattr(self.rollouts.spent.get(question, Spent()), self.budget.unit)
                    most = self._most(pick)
                    if spent + reserved.get(question, 0) + most > self.budget.of_question:
                        self.left_out[question] += 1
                        continue
                    reserved[question] = reserved.get(question, 0) + most
                starts.append(Start(pick.tree, pick.point, pick.turns, pick.writer, pick.script))
        return starts

    def _most(self, pick: Pick) -> int:
        """What a rollout may cost at most."""
        turns = self.env.most_turns - pick.point.turn - len(pick.script)
        turns = turns if pick.turns is None else min(turns, pick.turns)
        each = {"tokens": self.sampling.max_turn_tokens, "model_calls": 1, "tool_calls": self.env.most_calls}
        return turns * each[self.budget.unit]
