"""A frozen model beside the policy: the log-likelihood of an answer after every prefix of the rollouts.

Every place where the policy writes next, the prompt and each observation, gets the answers as further branches of its
tree (``tree.endings``), so that a forward pass over the packed forest scores them all and what prefixes share is
computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Float

from rlsearch.envs.types import Question
from rlsearch.errors import InputError
from rlsearch.models import sharding
from rlsearch.models.decoder import DecoderConfig, Params
from rlsearch.rewards import likelihood
from rlsearch.rewards.likelihood import ScorerConfig
from rlsearch.sampling.trees import Tree
from rlsearch.tokenization.template import AnswerTemplate
from rlsearch.tokenization.types import Tokenizer
from rlsearch.training.laid_rows import global_rows, own_rows
from rlsearch.training.step import StepConfig, make_scores
from rlsearch.tree import pack
from rlsearch.tree.build import Branch
from rlsearch.tree.endings import Asked, attach
from rlsearch.tree.forest import NONE, Kind, Rows

Judge = Callable[[Params, Rows, int], Float[np.ndarray, "M R S"]]


@dataclass(frozen=True)
class RowConfig:
    """The rows that answers are scored in, as a process has them."""

    tokens: int
    targets: int
    block: int  # rows of a block
    blocks: int  # that the pass is compiled for at least


@dataclass(frozen=True)
class Scorer:
    """Which model scores, and what.

    Attributes:
      config: which answers, and how several become one number.
      tokenizer: the policy's, which is the scorer's too.
      model: of the scorer.
      load: reads the parameters of a model of its own; None where the policy scores, as it was or as it is.
      rows: their sizes.
    """

    config: ScorerConfig
    tokenizer: Tokenizer
    model: DecoderConfig
    load: Callable[[Mesh], Params] | None
    rows: RowConfig

    def judge(self, start: Params, step: StepConfig, mesh: Mesh) -> Judge:
        """Builds ``judge(trained, rows, used) -> logp [M, R, S]`` of this process's rows, at temperature 1.

        Args:
          start: the policy's parameters before reinforcement learning.
          step: says how rows are attended to, and how many logits are in memory at once.
          mesh: where parameters and rows lie, by the sharding table.
        """
        frozen = start if self.load is None else self.load(mesh)
        frozen = None if self.config.model == "policy" else jax.device_put(frozen, sharding.shard(frozen, mesh))
        scores = make_scores(replace(step, model=self.model, temperature=1.0), mesh)
        laid = jax.jit(scores, out_shardings=NamedSharding(mesh, P(None, *sharding.ROWS)))

        def judge(trained: Params, rows: Rows, used: int):
            rows, used = global_rows(rows, used, mesh)
            return own_rows(laid(trained if frozen is None else frozen, rows, used), mesh)

        return judge

    def potentials(
        self, trees: Sequence[Tree], questions: Sequence[Question], judge: Callable[[Rows, int], np.ndarray]
    ) -> dict[int, float]:
        """What the scorer says where the policy writes next, by the id of the branch that ends there.

        It is 0 in the trees of a question for which there is nothing to ask.

        Raises:
          InputError: a question has no golden answer, or a prefix with its answer does not fit a row.
        """
        template = AnswerTemplate(self.config.before, self.config.after)
        answers = [self._answers(index, question, trees, template) for index, question in enumerate(questions)]
        asked = [Asked(tree.root, _places(tree), [ids for ids, _ in answers[tree.question]]) for tree in trees]
        forest, nodes = attach(asked, opening=template.opening_ids(self.tokenizer))
        cfg = self.rows
        try:
            packed = pack.pack(forest, width=cfg.tokens, targets=cfg.targets, multiple=cfg.block)
        except pack.PathTooLong as error:
            raise InputError(
                f"question {questions[trees[error.question].question].id}: a rollout with its answer behind it is too"
                f" long to be scored: {error}"
            ) from error
        rows, used = pack.in_blocks(packed.rows, block=cfg.block, floor=cfg.blocks)
        total = _by_node(rows, judge(rows, used), used, len(forest.nodes.end))
        found = {}
        for one, tree, where in zip(asked, trees, nodes, strict=True):
            value = np.zeros(len(one.places))
            if one.endings:
                weight = np.array([weight for _, weight in answers[tree.question]])
                tokens = np.array([len(ids) for ids in one.endings])
                value = likelihood.combine(self.config, total[where], tokens, weight)
            found |= {id(place): float(x) for place, x in zip(one.places, value, strict=True)}
        return found

    def _answers(
        self, index: int, question: Question, trees: Sequence[Tree], template: AnswerTemplate
    ) -> list[tuple[list[int], float]]:
        """Ids and weight of each answer that is asked for."""
        states = [episode.state for tree in trees if tree.question == index for episode in tree.episodes]
        return [
            (template.answer_ids(self.tokenizer, answer), weight)
            for answer, weight in likelihood.asked(self.config, question, states)
        ]


def _places(tree: Tree) -> list[Branch]:
    """Where a turn of the policy begins; in a later context, behind its prompt and observations."""
    if tree.continues == NONE:
        return [point.branch for point in tree.points if not point.written]
    found, waiting = [], [tree.root]
    while waiting:
        branch = waiting.pop()
        if branch.children and branch.kind in (Kind.PROMPT, Kind.OBSERVATION):
            found.append(branch)
        waiting += reversed(branch.children)
    return found


def _by_node(rows: Rows, logp: np.ndarray, used: int, nodes: int) -> Float[np.ndarray, "N"]:
    """Sum of the log-probabilities of each node's sampled tokens; of ``logp`` [M, R, S] blocks behind ours are left."""
    use = (rows.target >= 0) & (np.arange(len(rows.target)) < used)[:, None, None]
    return np.bincount(rows.target_node[use], weights=logp[: len(use)][use].astype(np.float64), minlength=nodes)
