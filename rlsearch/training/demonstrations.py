"""Demonstrations as rows for the supervised step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlsearch.envs import observations
from rlsearch.envs.traces import Trace, TracesConfig, draw_trace
from rlsearch.envs.types import Env
from rlsearch.envs.worlds import World
from rlsearch.errors import InputError
from rlsearch.tokenization.template import Template
from rlsearch.tokenization.types import Tokenizer
from rlsearch.tree import pack
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind, Rows


@dataclass(frozen=True)
class Demonstrator:
    """Draws traces about training worlds and packs them; ``rows(step)`` is a function of its arguments alone."""

    worlds: Sequence[World]
    traces: TracesConfig
    hops: tuple[int, ...]
    env: Env
    tokenizer: Tokenizer
    template: Template
    max_observation_tokens: int
    rows_of_step: int
    row_tokens: int
    row_targets: int
    seed: int
    process: int

    def rows(self, step: int) -> Rows:
        """Rows [R, W] filled with traces until the next one fits nowhere; always R of them, the shape of the step.

        Raises:
          InputError: a trace is longer than a row.
        """
        rng = np.random.default_rng([self.seed, 3, self.process, step])
        room, trees = np.tile([self.row_tokens, self.row_targets], (self.rows_of_step, 1)), []
        while True:
            world, hops = self.worlds[rng.integers(len(self.worlds))], self.hops[rng.integers(len(self.hops))]
            root = self.branch(draw_trace(self.traces, world, rng, hops=hops), episode=len(trees))
            size = _size(root)
            fits = np.flatnonzero((room >= size).all(axis=1))
            if not len(fits):
                self._check(size)
                break
            room[fits[0]] -= size
            trees.append((len(trees), root))
        while len((rows := self._pack(trees)).token_id) > self.rows_of_step:  # it packs in another order
            trees.pop()
        return rows

    def _check(self, size: np.ndarray) -> None:
        if size[0] > self.row_tokens or size[1] > self.row_targets:
            raise InputError(
                f"a demonstration of {size[0]} tokens, {size[1]} of them written, does not fit a row of"
                f" config.warmup.row_tokens {self.row_tokens} and config.warmup.row_targets {self.row_targets}; raise"
                f" them"
            )

    def _pack(self, trees: Sequence[tuple[int, Branch]]) -> Rows:
        forest = build(trees, terms=0)
        return pack.pack(forest, width=self.row_tokens, targets=self.row_targets, multiple=self.rows_of_step).rows

    def branch(self, trace: Trace, *, episode: int) -> Branch:
        """The trace as a chain: what the demonstrator wrote counts as sampled, what it read does not."""
        prompt = self.template.prompt_ids(self.tokenizer, trace.question.text)
        root = here = Branch(kind=Kind.PROMPT, turn=0, tokens=prompt)
        state = self.env.start(trace.question)
        for turn, (text, hits) in enumerate(trace.turns):
            ids = self.tokenizer.encode_control(text)
            kind = Kind.ANSWER if hits is None else Kind.QUERY
            here = _append(here, Branch(kind=kind, turn=turn, tokens=ids, logps=[0.0] * len(ids)))
            state = self.env.act(state, text)
            if hits is not None:
                state = self.env.observe(state, (hits,))
                seen = observations.encode(
                    state.turns[-1].observation, tokenizer=self.tokenizer, limit=self.max_observation_tokens
                )
                here = _append(here, Branch(kind=Kind.OBSERVATION, turn=turn, tokens=seen.ids))
        here.episode = episode
        return root


def _append(parent: Branch, child: Branch) -> Branch:
    parent.children.append(child)
    return child


def _size(branch: Branch) -> np.ndarray:
    """Tokens of a branch and what is below it, and how many of them the demonstrator wrote."""
    own = np.array([len(branch.tokens), len(branch.tokens) if branch.logps is not None else 0])
    return sum(map(_size, branch.children), own)
