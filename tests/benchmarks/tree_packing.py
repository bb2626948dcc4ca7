"""The training step on a forest against its paths, padded and unshared: ``python -m tests.benchmarks.tree_packing``.

A policy of 4 layers of width 256; episodes of a prompt of 128 tokens and turns of 64 sampled and 192 observed tokens.
Both sides make the whole step, compiled, on the same episodes: forward, credit, loss, backward, update. The forest has
a row for each tree; the paths have a row each, all of one length, so that nothing is padding. The forest attends by
blocks, the paths in whichever way is the faster. The sides take turns in one process; times are medians over the turns.

Figures, one for each shape: the speed-up divided by path tokens over tree tokens; 1 is a tree that costs exactly what
its tokens cost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from dataclasses import replace

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from rlsearch.credit import registry
from rlsearch.losses import policy
from rlsearch.models import decoder, sharding
from rlsearch.models.sharding import MeshConfig
from rlsearch.training.state import fresh
from rlsearch.training.step import StepConfig, make_policy_step
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Forest, Kind
from rlsearch.tree.pack import in_blocks, pack, pad_nodes
from tests.models import small
from tests.tree.random_forests import apart

PROMPT, SAMPLED, OBSERVED = 128, 64, 192
AT_ONCE = 13_000  # tokens of a block at most, on the side of the forest
MULTIPLE = 128  # row widths are multiples of it, as blocked attention needs
MODEL = replace(
    small.config(), vocab_size=4096, d_model=256, n_layers=4, n_heads=4, n_kv_heads=2, head_dim=64, d_ff=768,
    rope_theta=10000.0, max_positions=2048,
)  # fmt: skip
Trees = list[tuple[int, Branch]]


class Writer:
    """Trees of random tokens."""

    def __init__(self):
        self.rng, self.episodes = np.random.default_rng(0), itertools.count()

    def tree(self, fans: tuple[int, ...]) -> Branch:
        """A prompt that splits into so many turns after each turn, the first after the prompt."""
        return Branch(Kind.PROMPT, 0, self.tokens(PROMPT), children=[self.turn(0, fans) for _ in range(fans[0])])

    def turn(self, turn: int, fans: tuple[int, ...]) -> Branch:
        seen = Branch(Kind.OBSERVATION, turn, self.tokens(OBSERVED))
        if turn + 1 == len(fans):
            seen.episode, seen.rewards = next(self.episodes), [float(self.rng.integers(2))]
        else:
            seen.children = [self.turn(turn + 1, fans) for _ in range(fans[turn + 1])]
        logps = (-abs(self.rng.normal(8.3, 0.2, size=SAMPLED))).tolist()
        return Branch(Kind.QUERY, turn, self.tokens(SAMPLED), logps, [seen])

    def tokens(self, count: int) -> list[int]:
        return self.rng.integers(MODEL.vocab_size, size=count).tolist()


def chains() -> Trees:
    """Groups of 8 episodes that share their prompt, for two questions."""
    writer = Writer()
    return [(question, writer.tree((8, 1, 1))) for question in (0, 1)]


def tree_grpo() -> Trees:
    """M=2 trees a question; in L=1 round N=2 further episodes branch off each: one after the prompt, one a turn later;
    for two questions.
    """
    writer, trees = Writer(), []
    for question in (0, 0, 1, 1):
        root = writer.tree((2, 1, 1))
        seen = root.children[0].children[0]
        seen.children.append(writer.turn(1, (2, 1, 1)))
        trees.append((question, root))
    return trees


def deep() -> Trees:
    """2 trees of 16 leaves: 2 branches, 2 below each, 4 below each of those."""
    writer = Writer()
    return [(0, writer.tree((2, 2, 4))) for _ in range(2)]


SHAPES = {"chains": chains, "tree_grpo": tree_grpo, "deep": deep}


def config(attention: str) -> StepConfig:
    """GRPO with PPO's clip, all logits of a row's targets at once."""
    loss = {
        "level": "token", "clip": {"kind": "ppo", "low": 0.2, "high": 0.2}, "mismatch": None,
        "reduction": {"kind": "token"}, "kl": None, "entropy": 0.0, "terms": (),
    }  # fmt: skip
    return StepConfig(
        model=MODEL,
        credit=registry.read(ConfigDict({"estimator": "grpo", "scale": True, "drop_equal": False})),
        loss=policy.read(ConfigDict(loss)),
        weights=(1.0,),
        temperature=1.0,
        remat=False,
        attention=attention,
        logp_chunk=0,
        critic_trunk=None,
        lora=None,
    )


class Side:
    """One way to make the step: compiled, with its own copy of the state."""

    def __init__(self, forest: Forest, attention: str, *, rows_of_block: int):
        mesh = sharding.make_mesh(MeshConfig(1, 1, 1, 1), jax.devices()[:1])
        optimizer = optax.adam(1e-5)
        width, targets = _largest(forest)
        packed = pack(forest, width=width, targets=targets, multiple=rows_of_block)
        rows, blocks = in_blocks(packed.rows, block=rows_of_block, floor=1)
        self.arguments = sharding.to_global(rows, mesh), blocks, pad_nodes(forest.nodes, len(forest.nodes.end)), None
        self.state = fresh(decoder.init(jax.random.key(0), MODEL), optimizer, mesh)
        self.step = make_policy_step(config(attention), optimizer, mesh)
        self.shape, self.tokens = rows.token_id.shape, packed.tokens

    def take(self) -> tuple[float, float]:
        """Seconds of a step, and its loss."""
        begun = time.perf_counter()
        self.state, metrics, _ = jax.block_until_ready(self.step(self.state, None, *self.arguments))
        return time.perf_counter() - begun, float(metrics["loss"])


def _largest(forest: Forest) -> tuple[int, int]:
    """Tokens, rounded up, and sampled tokens of the largest tree."""
    starts = np.flatnonzero(forest.prev == -1)
    tokens = np.diff(np.append(starts, len(forest.token_id))).max()
    return -(-int(tokens) // MULTIPLE) * MULTIPLE, int(np.add.reduceat(forest.sampled.astype(int), starts).max())


def _divisor(rows: int, least: float) -> int:
    """Rows of a block: ``least`` or the next more that leave no row empty, or all of them."""
    return next(block for block in range(1, rows + 1) if rows % block == 0 and block >= min(least, rows))


def compare(trees: Trees, turns: int) -> tuple[float, dict]:
    """The figure, and what it was made of.

    Raises:
      ValueError: the sides' first losses differ, so that they do not compute the same.
    """
    forest, paths = build(trees, terms=1), build(apart(trees), terms=1)
    trees_at_once = max(1, AT_ONCE // _largest(forest)[0])
    paths_at_once = trees_at_once * _largest(forest)[0] / _largest(paths)[0]  # of as many tokens
    blocks = {"forest": _divisor(len(trees), trees_at_once), "paths": _divisor(len(apart(trees)), paths_at_once)}
    sides = {
        "forest": Side(forest, "blocked", rows_of_block=blocks["forest"]),
        "paths_dense": Side(paths, "dense", rows_of_block=blocks["paths"]),
        "paths_blocked": Side(paths, "blocked", rows_of_block=blocks["paths"]),
    }
    first = {name: side.take()[1] for name, side in sides.items()}
    if not np.allclose(list(first.values()), first["forest"], rtol=1e-4, atol=1e-6):
        raise ValueError(f"losses differ: {first}")
    seconds = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            seconds[name].append(side.take()[0])
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    speedup = min(middle["paths_dense"], middle["paths_blocked"]) / middle["forest"]
    ratio = len(paths.token_id) / len(forest.token_id)
    raw = {
        "seconds": seconds, "speedup": speedup, "ratio": ratio, "losses": first,
        "rows": {name: side.shape for name, side in sides.items()},
        "tokens": {name: side.tokens for name, side in sides.items()},
    }  # fmt: skip
    return speedup / ratio, raw


def main() -> None:
    parser = argparse.ArgumentParser(description="The training step on a forest against its paths.")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this shape; may be given again")
    options = parser.parse_args()
    figures, raw = {}, {}
    for name in options.shape or SHAPES:
        figures[name], raw[name] = compare(SHAPES[name](), options.turns)
    print(json.dumps({"name": "tree_packing", "figures": figures, "raw": raw}))


if __name__ == "__main__":
    main()
