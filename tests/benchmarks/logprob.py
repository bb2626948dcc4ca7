"""Log-probabilities in chunks against all at once: ``python -m tests.benchmarks.logprob``.

Forward and backward of log-probability and entropy, to hidden states and head, at the size of a small pretrained
model. ``memory`` is the ratio of temporary memory by XLA's own count, ``time`` the ratio of the fastest runs.
"""

from __future__ import annotations

import argparse
import json
import time

import jax

from rlsearch.losses import logprob


def inputs(rows: int, targets: int, width: int, vocabulary: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Hidden states of norm sqrt(width), an embedding whose logits have a spread of about one, and targets."""
    keys = jax.random.split(jax.random.key(0), 3)
    hidden = jax.random.normal(keys[0], (rows, targets, width))
    embedding = jax.random.normal(keys[1], (vocabulary, width)) * width**-0.5
    return hidden, embedding, jax.random.randint(keys[2], (rows, targets), 0, vocabulary)


def compiled(arguments, *, chunk: int):
    """Value and gradient of a loss that needs both outputs."""

    def loss(hidden, embedding, token_id):
        logp, entropy = logprob.score_hidden(hidden, embedding, token_id, tied=True, temperature=1.0, chunk=chunk)
        return -(logp + 0.01 * entropy).mean()

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1))).lower(*arguments).compile()


def seconds(functions: dict, arguments, *, repeats: int) -> dict[str, list[float]]:
    """Seconds of every run, the functions in turn, so that a change of the machine's load meets them alike."""
    found = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            begun = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            found[name].append(time.perf_counter() - begun)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Chunked against whole log-probabilities.")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--targets", type=int, default=2048, help="of a row")
    parser.add_argument("--width", type=int, default=576)
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    arguments = inputs(options.rows, options.targets, options.width, options.vocabulary)
    functions = {name: compiled(arguments, chunk=size) for name, size in (("whole", 0), ("chunked", options.chunk))}
    memory = {name: function.memory_analysis().temp_size_in_bytes for name, function in functions.items()}
    times = seconds(functions, arguments, repeats=options.repeats)
    figures = {
        "memory": memory["chunked"] / memory["whole"],
        "time": min(times["chunked"]) / min(times["whole"]),
    }
    raw = {"temporary_bytes": memory, "seconds": times, **vars(options)}
    print(json.dumps({"name": "logprob", "figures": figures, "raw": raw}))


if __name__ == "__main__":
    main()
