"""Writes a run directory that looks like a real one: plateaus, noise, groups of chains and trees that branch later.

``python -m tests.report.fake_run DIR`` writes one to look at.
"""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

NAMES = ("Velloria", "Tamarind", "Oskel", "Brunhau", "Ireth", "Calder", "Mossen", "Quillon", "Farrow", "Dessim")
RELATIONS = ("founder", "birthplace", "employer", "capital", "headquarters")


def write(run_dir: Path, *, steps: int, snapshots: int, trees: int, group: int, seed: int) -> Path:
    """A finished run of ``steps`` steps of RL whose rollouts were kept ``snapshots`` times."""
    rng = random.Random(seed)
    run_dir.mkdir(parents=True, exist_ok=True)
    config = {
        "seed": seed,
        "model": {"family": "qwen2", "d_model": 96, "n_layers": 3, "n_heads": 4, "tied": True, "dtype": "float32"},
        "optimizer": {"learning_rate": 6e-4, "clip_norm": 1.0, "schedule": {"kind": "cosine", "warmup_steps": 20}},
        "credit": {"estimator": "grpo", "group_size": group},
        "data": {"worlds": [f"world_{i:03d}" for i in range(8)], "note": "<b>bold</b> & </script>"},
    }
    (run_dir / "config.json").write_text(json.dumps(config))
    lines = [_warmup(rng, step) for step in range(10, 2001, 10)] + [_rl(rng, i, steps) for i in range(1, steps + 1)]
    _write_lines(run_dir / "metrics.jsonl", lines)
    marks = [round(i * steps / 5) for i in range(6)]
    evaluations = [_evaluation(step, progress(step, steps)) for step in marks]
    _write_lines(run_dir / "evaluations.jsonl", evaluations)
    (run_dir / "rollouts").mkdir(exist_ok=True)
    for i in range(snapshots):
        step = round((i + 1) * steps / snapshots)
        forest = [tree(rng, group, progress(step, steps), branching=j % 2 == 1) for j in range(trees)]
        text = json.dumps({"step": step, "trees": forest})
        (run_dir / "rollouts" / f"step_{step:06d}.json").write_text(text)
    summary = {
        "before": evaluations[0],
        "after": evaluations[-1],
        "seconds": {"prepare": 21.0, "warmup": 148.2, "rl": 333.4, "evaluate": 24.9, "total": 527.5},
        "peak_gb": 2.31,
        "parameters": 451_000,
        "export": "export",
    }
    (run_dir / "summary.json").write_text(json.dumps(summary))
    return run_dir


def progress(step: int, steps: int) -> float:
    """Skill in [0, 1]: a third of the run on a plateau, then a rise."""
    return 1 / (1 + math.exp(-12 * (step / steps - 0.5)))


def _warmup(rng: random.Random, step: int) -> dict[str, Any]:
    loss = 0.35 + 5.5 * math.exp(-step / 260) + rng.gauss(0, 0.04)
    return {"stage": "warmup", "step": step, "time": step * 0.074, "loss": loss, "grad_norm": abs(rng.gauss(0.8, 0.2))}


def _rl(rng: random.Random, step: int, steps: int) -> dict[str, Any]:
    skill = progress(step, steps)
    tree_tokens = round(rng.gauss(17_000 + 9_000 * skill, 700))
    return {
        "stage": "rl",
        "step": step,
        "time": 148 + step * 0.9,
        "reward": min(1.0, 0.3 + 0.55 * skill + rng.gauss(0, 0.05)),
        "exact_match": min(1.0, 0.28 + 0.56 * skill + rng.gauss(0, 0.05)),
        "searches": 1 + 1.1 * skill + rng.gauss(0, 0.05),
        "loss": rng.gauss(-0.01, 0.02),
        "kl": abs(rng.gauss(0.02 * skill, 0.002)),
        "clip_fraction": abs(rng.gauss(0.02, 0.006)),
        "entropy": 0.9 - 0.6 * skill + rng.gauss(0, 0.02),
        "grad_norm": math.exp(rng.gauss(-0.4, 0.4)) * (40 if step == steps // 2 else 1),
        "logp_gap": math.exp(rng.gauss(-13.5, 0.3)),
        "sampled_tokens": round(tree_tokens * 0.2),
        "tree_tokens": tree_tokens,
        "path_tokens": round(tree_tokens * 1.37),
        "dropped_groups": rng.randint(2, 9),
        "seconds": 0.8 + 0.3 * skill + abs(rng.gauss(0, 0.03)),
    }


def _evaluation(step: int, skill: float) -> dict[str, Any]:
    hops = {
        str(h): {"questions": 128, "exact_match": e, "f1": e, "searches": s}
        for h, e, s in ((1, 0.98, 1.0), (2, 0.02 + 0.74 * skill, 1 + 1.2 * skill), (3, 0.7 * skill, 1 + 1.8 * skill))
    }
    mean = {key: sum(part[key] for part in hops.values()) / 3 for key in ("exact_match", "f1", "searches")}
    extra = {"recall": 0.4 + 0.5 * skill, "answered": 0.99, "by_hops": hops}
    return {"stage": "rl", "step": step, "name": "heldout", "questions": 384, **mean, **extra}


def tree(rng: random.Random, group: int, skill: float, *, branching: bool) -> dict[str, Any]:
    """A question's rollouts: ``group`` chains from one prompt, or a tree that branches once more after a search."""
    person, relation, other = rng.choice(NAMES), rng.choice(RELATIONS), rng.choice(RELATIONS)
    golden = rng.choice(NAMES)
    question = f"What is the {relation} of the {other} of {person}?"
    nodes = [node(rng, -1, "prompt", f"Answer the question by searching.\nQuestion: {question}\n")]
    for _ in range(group // 4 if branching else group):
        end, searches = _search(rng, nodes, 0, 0, person, other)
        for _ in range(4 if branching else 1):
            last, count = end, searches
            while count < 3 and rng.random() < 0.15 + 0.7 * skill:
                last, count = _search(rng, nodes, last, count, rng.choice(NAMES), relation)
            right = rng.random() < 0.2 + 0.25 * count * skill
            answer = golden if right else rng.choice(NAMES)
            nodes.append(node(rng, last, "think", "<think> I can answer now. </think>\n"))
            nodes.append(node(rng, len(nodes) - 1, "answer", f"<answer> {answer} </answer>"))
            nodes[-1] |= {"reward": float(right), "searches": count}
    _credit(nodes)
    return {"question": question, "answers": [golden], "nodes": nodes}


def _search(rng, nodes: list[dict], parent: int, count: int, name: str, relation: str) -> tuple[int, int]:
    nodes.append(node(rng, parent, "think", f"<think> I need the {relation} of {name}. </think>\n"))
    nodes.append(node(rng, len(nodes) - 1, "search", f"<search> {relation} of {name} </search>"))
    passages = "".join(
        f"[{i + 1}] {rng.choice(NAMES)} {rng.choice(NAMES)}: the {rng.choice(RELATIONS)} of {rng.choice(NAMES)} is "
        f"{rng.choice(NAMES)}, as the registers of {rng.choice(NAMES)} have it.\n"
        for i in range(3)
    )
    nodes.append(node(rng, len(nodes) - 1, "information", f"\n<information>\n{passages}</information>\n"))
    return len(nodes) - 1, count + 1


def node(rng: random.Random, parent: int, kind: str, text: str) -> dict[str, Any]:
    sampled = kind not in ("prompt", "information")
    tokens = [
        {
            "text": piece,
            "sampled": sampled,
            "logp": -rng.expovariate(3) if sampled else None,
            "advantage": 0.0 if sampled else None,
        }
        for piece in text.replace("\n", " \n").split(" ")
    ]
    for token in tokens[1:]:
        token["text"] = token["text"] if token["text"].startswith("\n") else " " + token["text"]
    text = "".join(token["text"] for token in tokens)
    return {"parent": parent, "kind": kind, "text": text, "tokens": tokens, "reward": None, "searches": 0}


def _credit(nodes: list[dict[str, Any]]) -> None:
    """Group-normalised advantages: a node has the mean over the leaves below it."""
    below: list[list[float]] = [[] for _ in nodes]
    for i, leaf in enumerate(nodes):
        at = i
        while leaf["reward"] is not None and at >= 0:
            below[at].append(leaf["reward"])
            at = nodes[at]["parent"]
    mean = sum(below[0]) / len(below[0])
    spread = math.sqrt(sum((r - mean) ** 2 for r in below[0]) / len(below[0]))
    for one, found in zip(nodes, below, strict=True):
        for token in one["tokens"]:
            if token["sampled"]:
                token["advantage"] = (sum(found) / len(found) - mean) / spread if spread else 0.0


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    write(Path(sys.argv[1]), steps=400, snapshots=6, trees=16, group=8, seed=0)
