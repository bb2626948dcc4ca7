"""What a run says on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlsearch.assemble import Parts


def prepared(parts: Parts, parameters: int) -> str:
    """The task and the policy in two lines."""
    task, model = parts.task, parts.policy.model
    passages = sum(map(len, task.corpora.values()))
    return (
        f"task: {len(task.corpora)} corpora with {passages:,} passages, {len(task.train):,} questions to learn from,"
        f" {len(task.heldout):,} held out\n"
        f"policy: {parameters:,} parameters, {model.n_layers} layers of width {model.d_model},"
        f" {model.vocab_size:,} tokens"
    )


def evaluated(when: str, record: dict[str, Any]) -> str:
    """An evaluation in one line."""
    return (
        f"{when}: exact match {record['exact_match']:.3f}, searches a question {record['searches']:.2f},"
        f" over {record['questions']} held-out questions"
    )


def finished(summary: dict[str, Any], page: Path) -> str:
    """The table of before and after, and where things are."""
    before, after = summary["before"], summary["after"]
    rows = [("all", before, after)]
    rows += [(hops, before["by_hops"][hops], after["by_hops"][hops]) for hops in sorted(after["by_hops"], key=int)]
    head = f"{'':6}{'':>11}  {'exact match':^17}  {'searches':^17}\n"
    head += f"{'hops':6}{'questions':>11}  {'before':>8}{'after':>9}  {'before':>8}{'after':>9}\n"
    body = "".join(
        f"{hops:6}{b['questions']:>11}  {b['exact_match']:>8.2f}{a['exact_match']:>9.2f}"
        f"  {b['searches']:>8.2f}{a['searches']:>9.2f}\n"
        for hops, b, a in rows
    )
    seconds = summary["seconds"]["total"]
    return (
        f"\n{head}{body}\n{seconds / 60:.1f} minutes, {summary['peak_gb']:.1f} GB of memory at most\n"
        f"export, read back and compared: {summary['export']}\nreport: {page}"
    )
