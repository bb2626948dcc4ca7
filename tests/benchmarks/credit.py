"""Every estimator on a large table against its plain twin: ``python -m tests.benchmarks.credit``.

4,096 trees of 32 nodes, 8 trees a question, with random branches, rewards and notes. One side is the estimator and the
reduction, compiled; the other the same by loops and recursion in plain Python, as the tests compare them: the paths of
the table, the twin, and the weight of every token. Both run in turns in one process; times are medians.

Figure: ``speedup``, the smallest over the estimators. Those without a twin are listed in ``raw`` under ``left_out``.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from dataclasses import dataclass, replace

import jax
import numpy as np
from ml_collections import ConfigDict

from rlsearch.config import Call
from rlsearch.credit import registry
from rlsearch.credit.estimate import estimate
from rlsearch.credit.registry import ESTIMATORS, CreditConfig
from rlsearch.credit.slots import Slots
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import NONE, Forest, Kind, Nodes
from rlsearch.tree.pack import pack, pad_nodes
from tests.credit import plain, twins  # noqa: F401  (twins registers them)
from tests.credit.twins import critic

TREES, NODES, TREES_OF_QUESTION, DEEPEST = 4096, 32, 8, 7
TOKENS = 2  # of each node
CRITIC = {"discount": 0.9, "lam": 0.8, "whiten": True, "step_reward": True}
VALUES = [0.0, 0.0, 1.0, 0.25, -0.5]  # of notes


def random_tree(rng: np.random.Generator, episode: int) -> Branch:
    """A prompt, turns and observations below one another; each node hangs below a random earlier one."""
    nodes, depth = [Branch(Kind.PROMPT, 0, [0] * TOKENS)], [0]
    while len(nodes) < NODES:
        above = int(rng.choice(np.flatnonzero(np.array(depth) < DEEPEST)))
        level = depth[above] + 1
        kind = Kind.OBSERVATION if level % 2 == 0 else Kind.ANSWER if level == DEEPEST else Kind.QUERY
        node = Branch(kind, (level - 1) // 2, [0] * TOKENS, None if level % 2 == 0 else [-1.0] * TOKENS)
        nodes[above].children.append(node)
        nodes.append(node)
        depth.append(level)
    for offset, leaf in enumerate(node for node in nodes if not node.children):
        leaf.episode, leaf.rewards = episode + offset, [float(rng.choice([0.0, 0.25, 1.0]))]
    return nodes[0]


def table(trees: int) -> Forest:
    """The forest, laid out with room for its own paths and no more, as a run whose floors fit its expander has it."""
    rng = np.random.default_rng(0)
    grown = [(i // TREES_OF_QUESTION, random_tree(rng, i * NODES)) for i in range(trees)]
    forest = build(grown, terms=1)
    nodes = forest.nodes
    sizes = {"leaves": int((nodes.episode != NONE).sum()), "depth": DEEPEST + 1, "fan": int(nodes.paths.count.max())}
    return replace(forest, nodes=pad_nodes(nodes, len(nodes.end), **sizes))


@dataclass(frozen=True)
class Case:
    """An estimator with what both sides are given."""

    name: str
    options: dict
    nodes: Nodes
    slots: Slots | None

    @property
    def config(self) -> CreditConfig:
        return registry.read(ConfigDict({"estimator": self.name, "drop_equal": False, **self.options}))

    def jitted(self):
        """A call without arguments that computes the credit, compiled."""
        nodes = jax.device_put(self.nodes)
        compute = jax.jit(
            functools.partial(
                estimate, config=self.config, weights=(1.0,), reduction=Call("token", REDUCTIONS["token"], ())
            )
        )
        compiled = compute.lower(nodes, slots=self.slots).compile()
        return lambda: jax.block_until_ready(compiled(nodes, slots=self.slots))

    def by_recursion(self) -> None:
        whole = plain.Table(self.nodes, (1.0,))
        masked, kept = set(), set(whole.totals)
        if self.slots is None:
            masked = plain.TWINS[self.name](whole, **self.options).masked
        else:
            critic.tokenwise(self.name, whole, _tokens(whole, self.slots), **self.options)
        part = {
            (leaf, node)
            for leaf in kept
            for node in whole.paths[leaf]
            if whole.tokens[node] and (leaf, node) not in masked
        }
        plain.leaf_weights(whole, part, "token")


def cases(forest: Forest, names: list[str]) -> list[Case]:
    """Those of ``names`` that have a twin, at the first options it is tested with, and random notes."""
    rng, found = np.random.default_rng(1), []
    for name in names:
        inside = name in critic.RECURSIONS
        if not inside and name not in plain.TWINS:
            continue
        notes = dict.fromkeys([*ESTIMATORS[name].notes, *(["step_reward"] if inside else [])])
        columns = {note: rng.choice(VALUES, size=len(forest.nodes.end)).astype(np.float32) for note in notes}
        options = CRITIC if inside else plain.OPTIONS[name][0]
        found.append(Case(name, options, replace(forest.nodes, notes=columns), _slots(forest) if inside else None))
    return found


def _slots(forest: Forest) -> Slots:
    """The sampled tokens in rows of a tree each, with random values."""
    width = NODES * TOKENS
    rows = pack(forest, width=width, targets=width, multiple=1).rows
    value = np.random.default_rng(2).normal(size=rows.target.shape).astype(np.float32)
    return Slots(rows.target_node[None], (rows.target != NONE)[None], value[None], None)


def _tokens(whole: plain.Table, slots: Slots) -> dict[int, list[critic.Token]]:
    """The sampled tokens of each path as lists."""
    of_node: dict[int, list[critic.Token]] = {}
    for node, value in zip(slots.node[slots.use].tolist(), slots.value[slots.use].tolist(), strict=True):
        of_node.setdefault(node, []).append(critic.Token(node, whole.turn[node], value, 0.0))
    return {leaf: [token for node in path for token in of_node.get(node, [])] for leaf, path in whole.paths.items()}


def seconds(call) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def compare(case: Case, turns: int) -> dict:
    """Seconds of each side in turns; the compiled one runs five times a turn, after once to warm its memory."""
    fast, times = case.jitted(), {"jitted": [], "plain": []}
    fast()
    for _ in range(turns):
        fast()
        times["jitted"] += [seconds(fast) for _ in range(5)]
        times["plain"].append(seconds(case.by_recursion))
    middle = {side: statistics.median(values) for side, values in times.items()}
    return {"speedup": middle["plain"] / middle["jitted"], "seconds": times}


def main() -> None:
    parser = argparse.ArgumentParser(description="Every estimator against its plain twin.")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--estimator", action="append", help="only this one; may be given again")
    options = parser.parse_args()
    forest, names = table(options.trees), options.estimator or list(ESTIMATORS)
    found = {case.name: compare(case, options.turns) for case in cases(forest, names)}
    raw = {
        "estimators": found,
        "left_out": [name for name in names if name not in found],
        "nodes": len(forest.nodes.end),
        "paths": int((forest.nodes.episode != NONE).sum()),
        "layout": [*forest.nodes.paths.node.shape, forest.nodes.paths.fan],
    }
    figures = {"speedup": min(entry["speedup"] for entry in found.values())}
    print(json.dumps({"name": "credit", "figures": figures, "raw": raw}))


if __name__ == "__main__":
    main()
