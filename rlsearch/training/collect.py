"""From questions to a batch: rollouts, their rewards, the forest and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlsearch.envs.types import Question, State
from rlsearch.errors import InputError
from rlsearch.models.decoder import Params
from rlsearch.rewards import answers
from rlsearch.rewards.notes import Notes
from rlsearch.rewards.reward import Reward
from rlsearch.sampling.budget import BudgetConfig
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.engine import Engine
from rlsearch.sampling.grow import Expander, Grower, Grown, grow
from rlsearch.sampling.rollouts import Scene
from rlsearch.sampling.trees import Tree
from rlsearch.training.scorer import Scorer
from rlsearch.training.values import Values
from rlsearch.tree import pack
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import NONE, Forest, Nodes, Rows, leaves
from rlsearch.tree.merge import merge_prefixes
from rlsearch.tree.paths import room


@dataclass(frozen=True)
class BatchConfig:
    """The shapes that the policy step is compiled for."""

    questions: int  # of a step, over all processes
    row_tokens: int  # width of a row
    row_targets: int  # sampled tokens of a row at most
    block_rows: int  # rows of a block, over all processes
    blocks: int  # blocks that the step is compiled for at least; doubled where a batch needs more
    nodes: int  # nodes that it is compiled for at least; doubled where a batch needs more


@dataclass(frozen=True)
class Batch:
    """Rows in blocks [M, R, ...], how many blocks are used, the padded node table, and what it was made from."""

    rows: Rows
    blocks: int
    nodes: Nodes
    forest: Forest
    roots: list[tuple[int, Branch]]  # (question, root) of every tree, those without a signal too
    questions: tuple[Question, ...]
    metrics: dict[str, float]


@dataclass(frozen=True)
class Collector:
    """Writes the rollouts of a step."""

    engine: Engine
    scene: Scene
    expander: Expander
    reward: Reward
    notes: Notes
    values: Values | None  # of questions, from earlier steps
    scorer: Scorer | None  # of answers after every prefix
    config: BatchConfig
    merge_prefixes: float | None  # tolerance of log-probabilities, in nats, of ``tree.merge``; None merges nothing
    drop_equal: bool
    draw: Draw
    budget: BudgetConfig | None  # of the rollouts of a question
    share: int  # the batch's rows and nodes are 1 / share of the global step's

    def collect(
        self, params: Mapping[str, Params], questions: Sequence[Question], *,
        key, rng: np.random.Generator, version: int, judge: Callable[[Rows, int], np.ndarray] | None = None,
    ) -> Batch:  # fmt: skip
        """Grows the trees of ``questions`` and packs those that carry a signal.

        ``judge`` gives the log-probabilities of rows, where there is a scorer (``Scorer.judge``).
        """
        grower = Grower(self.engine, self.scene, params, key, self.draw, version, self._score, budget=self.budget)
        grown = grow(grower, self.expander, questions, rng)
        trees = grown.trees
        for episode in grown.episodes:
            score = self.reward.score(episode.state)
            for _, leaf in episode.ends:
                leaf.rewards = [score.columns[name] for name in self.reward.names]
        known = [0.0 if self.values is None else self.values.get(question.id) for question in questions]
        scored = {} if self.scorer is None else self.scorer.potentials(trees, questions, judge)
        self.notes.write(trees, known, scored)
        totals = [self._totals(trees, index) for index in range(len(questions))]
        if self.values is not None:
            for question, total in zip(questions, totals, strict=True):
                self.values.add(question.id, total.tolist())
        flat = {index for index, total in enumerate(totals) if _constant(total)}
        roots = [(tree.question, tree.root) for tree in trees]
        if self.merge_prefixes is not None:
            roots = merge_prefixes(roots, tolerance=self.merge_prefixes)
        forest = self._forest(pair for pair in roots if not (self.drop_equal and pair[0] in flat))
        rows, blocks, repeated = self._rows(forest, questions)
        metrics = (
            self._metrics(grown, forest)
            | self.notes.said(trees)
            | {
                "reward": _mean(np.concatenate(totals)),
                "dropped_groups": float(len(flat)),
                "repeated_tokens": float(repeated),
            }
        )
        nodes = pack.pad_nodes(
            forest.nodes, room(self.config.nodes // self.share, len(forest.nodes.end)),
            leaves=len(questions) * self.expander.leaves, depth=2 * self.scene.env.most_turns,
            fan=self.expander.leaves_of_tree if self.merge_prefixes is None else self.expander.leaves,
            questions=len(questions),
        )  # fmt: skip
        return Batch(rows, blocks, nodes, forest, roots, tuple(questions), metrics)

    def _score(self, state: State) -> float:
        return self.reward.total(self.reward.score(state))

    def _totals(self, trees: Sequence[Tree], question: int) -> np.ndarray:
        """The reward of each episode of a question, in float32; NaN where a term that counts could not be scored."""
        rewards = [e.leaf.rewards for tree in trees if tree.question == question for e in tree.episodes]
        weights = np.asarray(self.reward.weights, np.float32)
        # Summed by element: a matrix product may give equal rows unequal sums.
        return np.where(weights, np.asarray(rewards, np.float32) * weights, 0.0).sum(axis=1, dtype=np.float32)

    def _forest(self, roots: Iterable[tuple[int, Branch]]) -> Forest:
        return build(roots, terms=len(self.reward.names), notes=self.notes.names)

    def _rows(self, forest: Forest, questions: Sequence[Question]) -> tuple[Rows, int, int]:
        rows_of_block, cfg = self.config.block_rows // self.share, self.config
        try:
            packed = pack.pack(forest, width=cfg.row_tokens, targets=cfg.row_targets, multiple=rows_of_block)
        except pack.PathTooLong as error:
            raise InputError(f"question {questions[error.question].id}: {error}") from error
        rows, blocks = pack.in_blocks(packed.rows, block=rows_of_block, floor=self.config.blocks)
        return rows, blocks, packed.repeated

    def _metrics(self, grown: Grown, forest: Forest) -> dict[str, float]:
        states = [episode.state for episode in grown.episodes]
        lengths = _path_lengths(forest)
        return {
            "exact_match": float(np.mean([answers.exact_match(s.answer, golds=s.question.answers) for s in states])),
            "searches": float(np.mean([state.searches for state in states])),
            "answered": float(np.mean([state.answer is not None for state in states])),
            "episodes": float(len(states)),
            "sampled_tokens": float(grown.sampled_tokens),
            "read_tokens": float(grown.read_tokens),
            "copied_tokens": float(grown.copied_tokens),
            "pruned_tokens": float(grown.pruned_tokens),
            "model_calls": float(sum(spent.model_calls for spent in grown.spent)),
            "tool_calls": float(sum(spent.tool_calls for spent in grown.spent)),
            "failed_calls": float(grown.failed_calls),
            "left_out": float(sum(grown.left_out)),
            "tree_tokens": float(len(forest.token_id)),
            "path_tokens": float(lengths),
            "out_of_context": float(sum(episode.cut for episode in grown.episodes)),
            "cut_observations": float(grown.cut_observations),
        }


def _path_lengths(forest: Forest) -> int:
    """Tokens that the same episodes would take if nothing were shared."""
    last_of_node = np.flatnonzero(np.diff(forest.token_node, append=NONE))
    at_leaf = leaves(forest.nodes)[forest.token_node[last_of_node]]
    return int((forest.position[last_of_node[at_leaf]] + 1).sum())


def _constant(total: np.ndarray) -> bool:
    """Whether the episodes that could be scored earned the same; none or one that could be says nothing either."""
    scored = total[~np.isnan(total)]
    return len(scored) == 0 or scored.max() == scored.min()


def _mean(total: np.ndarray) -> float:
    scored = total[~np.isnan(total)]
    return float(scored.mean()) if len(scored) else float("nan")
