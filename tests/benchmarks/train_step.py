"""The training step against TRL's GRPO step in PyTorch: ``python -m tests.benchmarks.train_step``.

SmolLM2-135M in float32; one question, a prompt of 512 tokens and 8 completions of 128. Each side makes a whole step:
forward, loss, backward, clipping, AdamW. TRL's is ``GRPOTrainer.compute_loss`` on the checkpoint that rlsearch exports,
with TRL's own optimiser. rlsearch makes it twice: on the tree that the completions are (the prompt once), and on 8
rows that share nothing. Old log-probabilities, advantages and learning rate are the same; losses and norms of
gradients of the first two steps are compared before anything is timed.

Each side is a process of its own, so that its memory is its own; the processes take turns, and those that wait sleep.
Times are medians over the turns. Memory is the largest resident size of a process while it makes steps, compilation
left out. It needs torch, transformers and trl, which ``make setup-all`` installs.

Figures: ``shared`` is PyTorch's time over that of the tree, ``unshared_time`` the time of the 8 rows over PyTorch's,
``memory`` the tree's memory over PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

PROMPT, COMPLETION, EPISODES = 512, 128, 8
CLIP, LEARNING_RATE, CLIP_NORM = 0.2, 1e-6, 1.0
EPSILON = 1e-8  # of AdamW
SIDES = ("torch", "shared", "unshared")
CHUNK = 128  # targets of a row whose logits are in memory at once
Step = Callable[[], dict[str, float]]


def sample(seed: int, vocabulary: int) -> dict[str, np.ndarray]:
    """Token ids of the prompt and the completions, and their rewards."""
    rng = np.random.default_rng(seed)
    return {
        "prompt": rng.integers(100, vocabulary, size=PROMPT),
        "completions": rng.integers(100, vocabulary, size=(EPISODES, COMPLETION)),
        "rewards": np.arange(EPISODES) % 2.0,
    }


def _advantages(rewards: np.ndarray) -> np.ndarray:
    return (rewards - rewards.mean()) / rewards.std()


def _forest(data: dict[str, np.ndarray], *, shared: bool):
    """The episodes as one tree, or each as a tree of its own."""
    from rlsearch.tree.build import Branch, build
    from rlsearch.tree.forest import Kind
    from tests.tree.random_forests import apart

    root = Branch(Kind.PROMPT, 0, data["prompt"].tolist())
    for episode, (ids, logps, reward) in enumerate(
        zip(data["completions"], data["logps"], data["rewards"], strict=True)
    ):
        leaf = Branch(Kind.ANSWER, 0, ids.tolist(), logps.tolist(), episode=episode, rewards=[float(reward)])
        root.children.append(leaf)
    trees = [(0, root)]
    return build(trees if shared else apart(trees), terms=1)


def ours(data: dict[str, np.ndarray], *, shared: bool, block: int, attention: str, remat: str) -> Step:
    """rlsearch's step, compiled, on blocks of so many rows."""
    import jax
    import optax
    from ml_collections import ConfigDict

    from rlsearch.credit import registry
    from rlsearch.interop.gguf import import_gguf, smollm2_path
    from rlsearch.losses import policy
    from rlsearch.models import sharding
    from rlsearch.models.sharding import MeshConfig
    from rlsearch.training.state import fresh
    from rlsearch.training.step import StepConfig, make_policy_step
    from rlsearch.tree.pack import in_blocks, pack, pad_nodes

    model, params, _ = import_gguf(smollm2_path())
    loss = {
        "level": "token", "clip": {"kind": "ppo", "low": CLIP, "high": CLIP}, "mismatch": None,
        "reduction": {"kind": "token"}, "kl": None, "entropy": 0.0, "terms": (),
    }  # fmt: skip
    config = StepConfig(
        model=model,
        credit=registry.read(ConfigDict({"estimator": "grpo", "scale": True, "drop_equal": False})),
        loss=policy.read(ConfigDict(loss)),
        weights=(1.0,),
        temperature=1.0,
        remat=remat,
        attention=attention,
        logp_chunk=CHUNK,
        critic_trunk=None,
        lora=None,
    )
    optimizer = optax.chain(
        optax.clip_by_global_norm(CLIP_NORM), optax.adamw(LEARNING_RATE, eps=EPSILON, weight_decay=0.0)
    )
    mesh = sharding.make_mesh(MeshConfig(1, 1, 1, 1), jax.devices()[:1])
    forest = _forest(data, shared=shared)
    width = PROMPT + COMPLETION * (EPISODES if shared else 1)
    packed = pack(forest, width=width, targets=COMPLETION * (EPISODES if shared else 1), multiple=block)
    rows, blocks = in_blocks(packed.rows, block=block, floor=1)
    arguments = sharding.to_global(rows, mesh), blocks, pad_nodes(forest.nodes, len(forest.nodes.end)), None
    state = fresh(jax.tree.map(jax.numpy.asarray, params), optimizer, mesh)
    del params
    step = make_policy_step(config, optimizer, mesh).lower(state, None, *arguments).compile()

    def take() -> dict[str, float]:
        nonlocal state
        begun = time.perf_counter()
        state, metrics, _ = jax.block_until_ready(step(state, None, *arguments))
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "loss": float(metrics["loss"]), "grad_norm": float(metrics["grad_norm"])}

    return take


def torchs(data: dict[str, np.ndarray], checkpoint: Path) -> Step:
    """TRL's step."""
    import torch
    import transformers
    import trl
    from datasets import Dataset

    torch.set_num_threads(os.cpu_count())
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    args = trl.GRPOConfig(
        output_dir=str(checkpoint.parent / "trl"), use_cpu=True, bf16=False, report_to=[], loss_type="grpo",
        num_generations=EPISODES, per_device_train_batch_size=EPISODES, max_completion_length=COMPLETION,
        gradient_checkpointing=False, beta=0.0, epsilon=CLIP, temperature=1.0, learning_rate=LEARNING_RATE,
        weight_decay=0.0, adam_epsilon=EPSILON, max_grad_norm=CLIP_NORM,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "a"}] * EPISODES),
        processing_class=transformers.AutoTokenizer.from_pretrained(checkpoint),
    )
    optimizer = trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    prompt = torch.tensor(data["prompt"])[None].repeat(EPISODES, 1)
    completions = torch.tensor(data["completions"])
    inputs = {
        "prompt_ids": prompt, "prompt_mask": torch.ones_like(prompt),
        "completion_ids": completions, "completion_mask": torch.ones_like(completions),
        "advantages": torch.tensor(_advantages(data["rewards"]), dtype=torch.float32),
        "old_per_token_logps": torch.tensor(data["logps"], dtype=torch.float32),
        "num_items_in_batch": torch.tensor(completions.numel()),
    }  # fmt: skip

    def take() -> dict[str, float]:
        begun = time.perf_counter()
        loss = trainer.compute_loss(trainer.model, inputs)
        trainer.accelerator.backward(loss)
        norm = trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "loss": float(loss.detach()), "grad_norm": float(norm)}

    return take


def prepare(folder: Path) -> None:
    """Writes the checkpoint and the data, with log-probabilities a little off those of the policy."""
    import jax
    import jax.numpy as jnp

    from rlsearch.interop.export import export_model
    from rlsearch.interop.gguf import import_gguf, smollm2_path
    from rlsearch.models import decoder

    model, params, tokenizer = import_gguf(smollm2_path())
    export_model(folder / "checkpoint", params, model, tokenizer)
    data = sample(0, model.vocab_size)

    params = jax.tree.map(jnp.asarray, params)

    @jax.jit
    def logps(params, token_id):
        kinds = {"token_end": jnp.full_like(token_id, len(token_id[0])), "remat": False, "attention": "dense"}
        position = jnp.arange(len(token_id[0]))[None]
        hidden = decoder.apply(params, model, token_id=token_id, position=position, **kinds)[:, PROMPT - 1 : -1]
        logp = jax.nn.log_softmax(decoder.logits(params, model, hidden))
        return jnp.take_along_axis(logp, token_id[:, PROMPT:, None], axis=-1)[..., 0]

    ids = [np.append(data["prompt"], completion)[None] for completion in data["completions"]]
    found = np.concatenate([np.asarray(logps(params, jnp.asarray(row))) for row in ids])
    data["logps"] = np.minimum(found + np.random.default_rng(1).normal(0.0, 0.1, size=found.shape), 0.0)
    np.savez(folder / "data.npz", **data)


def serve(options: argparse.Namespace) -> None:
    """Makes a step for every line of the standard input, and answers with what it took."""
    with np.load(options.folder / "data.npz") as file:
        data = dict(file)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    if options.side == "torch":
        step = torchs(data, options.folder / "checkpoint")
    else:
        shared = options.side == "shared"
        step = ours(
            data, shared=shared, block=1 if shared else options.block, attention=options.attention, remat=options.remat
        )
    Path("/proc/self/clear_refs").write_text("5")  # the largest size so far is forgotten
    for _ in sys.stdin:
        answer = step()
        print(json.dumps(answer | {"peak_bytes": _peak_bytes()}), file=answers, flush=True)


def _peak_bytes() -> int:
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


class Side:
    """One side in its process."""

    def __init__(self, name: str, folder: Path, options: argparse.Namespace):
        command = [sys.executable, "-m", "tests.benchmarks.train_step", "--side", name, "--folder", str(folder)]
        command += ["--block", str(options.block), "--attention", options.attention, "--remat", options.remat]
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def take(self) -> dict[str, float]:
        """What a step took.

        Raises:
          ChildProcessError: the process ended; what it said stands in the standard error.
        """
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise ChildProcessError(f"the side {self.name} ended with status {self.process.wait()}")
        answer = json.loads(line)
        print(self.name, answer, file=sys.stderr, flush=True)
        return answer

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def compare(folder: Path, options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Every step of every side, the two that warm up left out.

    Raises:
      ValueError: the sides' first losses or gradients differ, so that they do not compute the same.
    """
    subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.train_step", "--side", "prepare", "--folder", str(folder)], check=True
    )
    sides = {name: Side(name, folder, options) for name in SIDES}
    try:
        for _ in range(2):
            first = {name: side.take() for name, side in sides.items()}
            for value, tolerance in (("loss", 1e-4), ("grad_norm", 1e-3)):
                found = {name: answer[value] for name, answer in first.items()}
                if not np.allclose(list(found.values()), found["torch"], rtol=tolerance, atol=1e-6):
                    raise ValueError(f"the sides' {value} differ: {found}")
        steps = {name: [] for name in sides}
        for _ in range(options.turns):
            for name, side in sides.items():
                steps[name].append(side.take())
    finally:
        for side in sides.values():
            side.end()
    return steps


def measure(options: argparse.Namespace) -> dict[str, object]:
    """The comparison as the benchmark prints it."""
    with tempfile.TemporaryDirectory() as folder:
        steps = compare(Path(folder), options)
    seconds = {name: statistics.median(step["seconds"] for step in taken) for name, taken in steps.items()}
    peaks = {name: max(step["peak_bytes"] for step in taken) for name, taken in steps.items()}
    figures = {
        "shared": seconds["torch"] / seconds["shared"],
        "unshared_time": seconds["unshared"] / seconds["torch"],
        "memory": peaks["shared"] / peaks["torch"],
    }
    raw = {"seconds": seconds, "peak_bytes": peaks, "steps": steps, "attention": options.attention}
    return {"name": "train_step", "figures": figures, "raw": raw}


def main() -> None:
    parser = argparse.ArgumentParser(description="The training step against TRL's in PyTorch.")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--block", type=int, default=1, help="rows at a time where nothing is shared")
    parser.add_argument("--attention", default="blocked")
    parser.add_argument("--remat", default="none")
    parser.add_argument("--side", choices=("prepare", *SIDES), help="serve as this side (the benchmark starts them)")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.side == "prepare":
        prepare(options.folder)
    elif options.side is not None:
        serve(options)
    else:
        print(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
