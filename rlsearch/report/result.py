"""The header's facts and the before/after table: what was trained, for how long, and what it learned."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from rlsearch.report.axis import short
from rlsearch.report.read import Run

STAGE_NAMES = {"warmup": "warm-up", "rl": "RL"}
NOT_YET = "<p class=empty>Not yet.</p>"


def ends(run: Run) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
    """The evaluations before and after, and what the second one is called.

    They are those of the summary; while a run is going, the first and the latest of the first-named set of
    evaluations that it has written during reinforcement learning.
    """
    summary = run.summary or {}
    if summary.get("before") and summary.get("after"):
        return summary["before"], summary["after"], "after"
    found = [line for line in run.evaluations if line["stage"] == "rl"]
    found = [line for line in found if line["name"] == found[0]["name"]]
    before = summary.get("before") or (found[0] if found else None)
    after = found[-1] if len(found) > 1 else None
    return before, after, f"step {after['step']:,}" if after else "after"


def facts(run: Run) -> str:
    """A row of short facts under the run's name; those that are not known yet are left out."""
    summary, rows = run.summary or {}, []
    model = (run.config or {}).get("model")
    if isinstance(model, dict) and {"family", "n_layers", "d_model"} <= model.keys():
        rows.append(("Model", f"{model['family']}, {model['n_layers']} layers of width {model['d_model']}"))
    if "parameters" in summary:
        rows.append(("Parameters", f"{summary['parameters'] / 1e6:.3g} M"))
    done = [f"{lines[-1]['step']:,} {STAGE_NAMES.get(stage, stage)}" for stage, lines in run.metrics.items()]
    if done:
        rows.append(("Steps", ", ".join(done)))
    if "seconds" in summary:
        rows.append(("Time", _time(summary["seconds"])))
    if "peak_gb" in summary:
        rows.append(("Peak memory", f"{summary['peak_gb']:.3g} GB"))
    if summary.get("export"):
        rows.append(("Export", str(summary["export"])))
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in rows)


def _time(seconds: dict[str, float]) -> str:
    parts = [f"{STAGE_NAMES.get(name, name)} {duration(value)}" for name, value in seconds.items() if name != "total"]
    total = seconds.get("total", sum(seconds.values()))
    return f"{duration(total)} ({', '.join(parts)})" if parts else duration(total)


def duration(seconds: float) -> str:
    """``45 s``, ``5 min 33 s``, ``3 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def headline(run: Run) -> str:
    """One sentence that says what changed, or that nothing is known yet."""
    before, after, name = ends(run)
    if not before:
        return "No evaluation has been written yet."
    if not after:
        return (
            f"Before reinforcement learning, exact match is {before['exact_match']:.2f} on {before['questions']:,} "
            f"held-out questions with {before['searches']:.2f} searches per question."
        )
    when = "" if name == "after" else f" by {name}"
    return (
        f"On {after['questions']:,} held-out questions, exact match went from {before['exact_match']:.2f} to "
        f"{after['exact_match']:.2f}{when}, and searches per question from {before['searches']:.2f} to "
        f"{after['searches']:.2f}."
    )


def table(run: Run) -> str:
    """Exact match and searches per question, before and after, for all questions and by hops."""
    before, after, name = ends(run)
    if not before:
        return NOT_YET
    hops = sorted({*before.get("by_hops", {}), *(after or {}).get("by_hops", {})}, key=int)
    rows = [_row("All", before, after)]
    rows += [_row(_hops(h), before.get("by_hops", {}).get(h), (after or {}).get("by_hops", {}).get(h)) for h in hops]
    head = f"<th scope=col>before</th><th scope=col>{escape(name)}</th>"
    waiting = "" if after else "<p class=note>The evaluation after training: not yet.</p>"
    return (
        "<div class=scroll><table class=result><thead>"
        "<tr><td></td><th scope=colgroup colspan=3>Exact match</th><td class=wide></td>"
        "<th scope=colgroup colspan=2>Searches</th><td class=wide></td></tr>"
        f"<tr><th scope=col>Questions</th>{head}<th scope=col>change</th><td class=wide>{_scale()}</td>{head}"
        "<th scope=col class=wide>count</th></tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>{waiting}"
        "<p class='note wide'>Lines are 95% Wilson intervals over questions. Hollow: before. Filled: after.</p>"
    )


def _hops(hops: str) -> str:
    return f"{hops} hop" if hops == "1" else f"{hops} hops"


def _row(name: str, before: dict | None, after: dict | None) -> str:
    def cell(part: dict | None, key: str) -> str:
        return f"<td>{part[key]:.2f}</td>" if part else "<td class=empty>\u2013</td>"

    change = "<td class=empty>\u2013</td>"
    if before and after:
        gain = f"{after['exact_match'] - before['exact_match']:+.2f}".replace("-", "\u2212")
        change = f"<td>{'0.00' if gain[1:] == '0.00' else gain}</td>"
    count = (after or before or {}).get("questions", 0)
    return (
        f"<tr><th scope=row>{name}</th>{cell(before, 'exact_match')}{cell(after, 'exact_match')}{change}"
        f"<td class=wide>{_dumbbell(before, after)}</td>{cell(before, 'searches')}{cell(after, 'searches')}"
        f"<td class=wide>{count:,}</td></tr>"
    )


def _x(share: float) -> float:
    return 10 + 220 * share


def _scale() -> str:
    ticks = "".join(f"<text class=tick x={_x(v)} y=12 text-anchor=middle>{short(v)}</text>" for v in (0, 0.5, 1))
    return f'<svg viewBox="0 0 240 16" class=dumbbell aria-hidden=true>{ticks}</svg>'


def _dumbbell(before: dict | None, after: dict | None) -> str:
    parts = ['<path class=grid d="M10 0V26M120 0V26M230 0V26"/>']
    if before and after:
        parts.append(f'<path class=join d="M{_x(before["exact_match"]):.1f} 13H{_x(after["exact_match"]):.1f}"/>')
    for kind, part, y in (("before", before, 13), ("after", after, 13)):
        if part:
            low, high = wilson(part["exact_match"], part["questions"])
            parts.append(f'<path class="interval {kind}" d="M{_x(low):.1f} {y}H{_x(high):.1f}"/>')
            parts.append(f"<circle class={kind} cx={_x(part['exact_match']):.1f} cy={y} r=5 />")
    return f'<svg viewBox="0 0 240 26" class=dumbbell aria-hidden=true>{"".join(parts)}</svg>'


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95% score interval of a proportion (Wilson 1927).

    ``(p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)`` with z = 1.96; all of [0, 1] when ``count`` is 0.
    """
    if count < 1:
        return 0.0, 1.0
    z = 1.96
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(max(0.0, share * (1 - share)) / count + z * z / (4 * count * count))
    return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)
