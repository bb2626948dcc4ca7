"""Blocked against dense attention on a long row: ``python -m tests.benchmarks.attention``.

One row of 4,096 tokens holds a tree (a prompt, two branches, two leaves below each) of which half of the blocks that a
causal mask would compute have nothing to see. Both sides compute value and gradients, compiled, in turns in one
process; times are the medians of the turns. Figures: ``speedup`` is the dense time over the blocked one, ``memory`` the
blocked temporary memory over the dense one, as XLA plans it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from rlsearch.models import attention, attention_blocked, block_pairs

TOKENS, HEADS, KV_HEADS, WIDTH = 4096, 4, 2, 64
PROMPT, BRANCH = 256, 640  # 256 + 2 * 640 + 4 * 640 = 4,096


def token_end() -> np.ndarray:
    """The tree's ends, [1, T]."""
    end = np.full(TOKENS, TOKENS)
    for start in (PROMPT, PROMPT + 3 * BRANCH):
        end[start : start + BRANCH] = start + 3 * BRANCH
        for leaf in (start + BRANCH, start + 2 * BRANCH):
            end[leaf : leaf + BRANCH] = leaf + BRANCH
    return end[None].astype(np.int32)


def dense(q, k, v, end):
    return attention.masked_attention(q, k.swapaxes(1, 2), v.swapaxes(1, 2), attention.visible(end))


def compiled(attend, arguments, cotangent):
    def loss(q, k, v):
        return jnp.vdot(attend(q, k, v, arguments[3]), cotangent)

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2))).lower(*arguments[:3]).compile()


def seconds(call, arguments) -> float:
    begun = time.perf_counter()
    jax.block_until_ready(call(*arguments[:3]))
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description="Blocked against dense attention on a long row.")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--block", type=int, default=attention_blocked.BLOCK)
    options = parser.parse_args()
    rng, end = np.random.default_rng(0), token_end()
    shapes = [(1, TOKENS, heads, WIDTH) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    *qkv, cotangent = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    arguments = (*qkv, jnp.asarray(end))

    def blocked(*arguments):
        return attention_blocked.attend(*arguments, block=options.block)

    sides = {name: compiled(attend, arguments, cotangent) for name, attend in (("dense", dense), ("blocked", blocked))}
    for call in sides.values():
        seconds(call, arguments)
    times = {name: [] for name in sides}
    for _ in range(options.turns):
        for name, call in sides.items():
            times[name].append(seconds(call, arguments))
    temporary = {name: call.memory_analysis().temp_size_in_bytes for name, call in sides.items()}
    pairs = block_pairs.by_query(end, options.block)
    middle = {name: statistics.median(values) for name, values in times.items()}
    figures = {
        "speedup": middle["dense"] / middle["blocked"],
        "memory": temporary["blocked"] / temporary["dense"],
    }
    raw = {
        "seconds": times,
        "temporary_bytes": temporary,
        "block": options.block,
        "empty": 1 - int(pairs.count[0]) / pairs.key.shape[1],
    }
    print(json.dumps({"name": "attention", "figures": figures, "raw": raw}))


if __name__ == "__main__":
    main()
