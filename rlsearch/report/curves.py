"""Learning curves as small multiples: inline SVG that reads without scripts, and the numbers for a hover read-out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rlsearch.report.axis import Axis, axis, short, smooth
from rlsearch.report.read import Run
from rlsearch.report.trees import finite

STAGES = {"warmup": "Warm-up", "rl": "Reinforcement learning"}
WIDTH, HEIGHT, LEFT, RIGHT, LABELS, TOP, BOTTOM = 400, 172, 44, 14, 96, 10, 24  # in units of the SVG's viewBox
MOST_POINTS = 600  # longer series are averaged over equal blocks, more than a chart of 400 units can show


@dataclass(frozen=True)
class Panel:
    """One chart: metrics drawn on one axis, and the field of held-out evaluations that belongs on it, if any."""

    title: str
    unit: str
    metrics: tuple[tuple[str, str], ...]
    held_out: str | None
    may_log: bool


MAIN = (
    Panel(
        "Reward and exact match",
        "mean",
        (("reward", "reward"), ("exact_match", "exact match")),
        "exact_match",
        False,
    ),
    Panel("Searches per question", "mean", (("searches", "training"),), "searches", False),
    Panel("Loss", "", (("loss", "loss"),), None, False),
    Panel("Entropy of the policy", "nats per token", (("entropy", "entropy"),), None, False),
    Panel("Gradient norm", "", (("grad_norm", "gradient norm"),), None, True),
    Panel("Sampler\u2013trainer gap", "difference of log-probability", (("logp_gap", "gap"),), None, True),
    Panel(
        "Tokens per step",
        "",
        (("path_tokens", "on paths"), ("tree_tokens", "in trees"), ("sampled_tokens", "sampled")),
        None,
        False,
    ),
    Panel("Seconds per step", "", (("seconds", "seconds"),), None, False),
)


@dataclass(frozen=True)
class Series:
    """Points of one line: ``steps[i]`` is the last step of a block, ``values[i]`` its mean or None for a gap."""

    label: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    dots: bool


def render(run: Run) -> tuple[str, list[dict[str, Any]]]:
    """HTML of every stage's charts, and one record a chart for the hover read-out (see ``assets/curves.js``)."""
    html, records = [], []
    for stage in sorted(run.metrics, key=lambda s: list(STAGES).index(s) if s in STAGES else len(STAGES)):
        lines = run.metrics[stage]
        evaluations = [line for line in run.evaluations if line["stage"] == stage]
        panels, more = _panels(lines)
        shown, hidden = (
            [_chart(panel, stage, lines, evaluations, records) for panel in group] for group in (panels, more)
        )
        first, last = lines[0]["step"], lines[-1]["step"]
        html.append(f"<h3>{escape(STAGES.get(stage, stage))} <small>steps {first:,}\u2013{last:,}</small></h3>")
        html.append(f'<div class="charts">{"".join(shown)}</div>')
        if any(hidden):
            html.append(f"<details class=more><summary>{len([h for h in hidden if h])} more measures</summary>")
            html.append(f'<div class="charts">{"".join(hidden)}</div></details>')
    return "".join(html), records


def _panels(lines: Sequence[dict[str, Any]]) -> tuple[list[Panel], list[Panel]]:
    """The main panels that have data, and one panel for each metric that none of them shows."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    main = [panel for panel in MAIN if any(metric in names for metric, _ in panel.metrics)]
    used = {"stage", "step", "time"} | {metric for panel in main for metric, _ in panel.metrics}
    others = [name for name in names if name not in used]
    return main, [Panel(name.replace("_", " "), "", ((name, name),), None, False) for name in others]


def _chart(panel: Panel, stage: str, lines: Sequence[dict], evaluations: Sequence[dict], records: list[dict]) -> str:
    series = [_blocks(lines, metric, label) for metric, label in panel.metrics]
    for name in dict.fromkeys(line["name"] for line in evaluations) if panel.held_out else ():
        found = [line for line in evaluations if line["name"] == name]
        values = tuple(finite(line[panel.held_out]) for line in found)
        label = "held out" if name == "heldout" else name
        series.append(Series(label, tuple(line["step"] for line in found), values, True))
    series = [one for one in series if any(v is not None for v in one.values)]
    if not series:
        return ""
    labelled = len(series) > 1
    right = WIDTH - (LABELS if labelled else RIGHT)
    values = [v for one in series for v in one.values if v is not None]
    y = axis(values, HEIGHT - BOTTOM, TOP, may_log=panel.may_log)
    x = _steps_axis([step for one in series for step in one.steps], right)
    drawn = [_line(one, i, x, y) for i, one in enumerate(series)]
    ends = _end_labels(series, x, y) if labelled else ""
    last = " \u00b7 ".join(f"{one.label} {short(_last(one, y))}" for one in series)
    last = last if labelled else short(_last(series[0], y))
    records.append(_record(stage, series, x, y, last))
    unit = ", ".join(word for word in (panel.unit, "log scale" if y.log else "") if word)
    name = escape(f"{panel.title}, {STAGES.get(stage, stage)}: last {last}. Arrow keys read values.")
    return (
        f'<figure class="chart{" many" if len(series) > 2 else ""}"><figcaption>'
        f"<b>{escape(panel.title[:1].upper() + panel.title[1:])}</b> <small>{escape(unit)}</small>"
        f"<output aria-live=off>last {escape(last)}</output></figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" tabindex=0 role=img aria-label="{name}" data-chart={len(records) - 1}>'
        f"{_grid(x, y, right)}{''.join(drawn)}{ends}<g class=cursor></g></svg></figure>"
    )


def _blocks(lines: Sequence[dict[str, Any]], metric: str, label: str) -> Series:
    size = -(-len(lines) // MOST_POINTS)
    steps, values = [], []
    for start in range(0, len(lines), size):
        block = lines[start : start + size]
        known = [v for v in (finite(line.get(metric)) for line in block) if v is not None]
        steps.append(block[-1]["step"])
        values.append(sum(known) / len(known) if known else None)
    return Series(label, tuple(steps), tuple(values), False)


def _steps_axis(steps: Iterable[int], right: float) -> Axis:
    low, high = min(steps), max(steps)
    return Axis(low, high if high > low else low + 1, LEFT, right, False)


def _grid(x: Axis, y: Axis, right: float) -> str:
    parts = []
    for tick in y.ticks(4):
        at = y(tick)
        parts.append(f'<path class=grid d="M{LEFT} {at:.1f}H{right}"/>')
        parts.append(f"<text class=tick x={LEFT - 6} y={at + 4:.1f} text-anchor=end>{short(tick)}</text>")
    for tick in x.ticks(4):
        if tick == int(tick):
            anchor = "start" if x(tick) < LEFT + 10 else "middle"
            parts.append(f"<text class=tick x={x(tick):.1f} y={HEIGHT - 6} text-anchor={anchor}>{short(tick)}</text>")
    return "".join(parts)


def _line(one: Series, colour: int, x: Axis, y: Axis) -> str:
    if one.dots:
        known = [(x(s), y(v)) for s, v in zip(one.steps, one.values, strict=True) if v is not None]
        line = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in known)
        dots = "".join(f"<circle cx={a:.1f} cy={b:.1f} r=3.2 />" for a, b in known)
        return f'<g class="dots c{colour % 5}"><path d="{line}"/>{dots}</g>'
    raw = f'<path class=raw d="{_path(one.steps, one.values, x, y)}"/>' if len(one.values) >= 25 else ""
    return f'<g class="line c{colour % 5}">{raw}<path d="{_path(one.steps, smooth(one.values, log=y.log), x, y)}"/></g>'


def _path(steps: Sequence[int], values: Sequence[float | None], x: Axis, y: Axis) -> str:
    parts, pen_up = [], True
    for step, value in zip(steps, values, strict=True):
        if value is not None:
            parts.append(f"{'M' if pen_up else 'L'}{x(step):.1f} {y(value):.1f}")
        pen_up = value is None
    # A point between two gaps, or a single point, is drawn as a dot by the round line cap.
    return "".join(parts) + ("h0" if len(parts) == 1 else "")


def _end_labels(series: Sequence[Series], x: Axis, y: Axis) -> str:
    """Names at the ends of lines, pushed apart so that none covers another."""
    wanted = sorted((y(_last(one, y)), i, one.label) for i, one in enumerate(series))
    places: list[float] = []
    for at, _, _ in wanted:
        places.append(max(at, places[-1] + 14 if places else TOP))
    shift = max(0.0, places[-1] - (HEIGHT - BOTTOM))
    return "".join(
        f'<circle class="key c{i % 5}" cx={x.end + 10} cy={at - shift:.1f} r=3.5 />'
        f"<text class=label x={x.end + 18} y={at - shift + 4:.1f}>{escape(label)}</text>"
        for at, (_, i, label) in zip(places, wanted, strict=True)
    )


def _last(one: Series, y: Axis) -> float:
    values = one.values if one.dots else smooth(one.values, log=y.log)
    return next(v for v in reversed(values) if v is not None)


def _record(stage: str, series: Sequence[Series], x: Axis, y: Axis, last: str) -> dict[str, Any]:
    columns = [
        {"label": s.label, "steps": s.steps, "values": [None if v is None else float(f"{v:.4g}") for v in s.values]}
        for s in series
    ]
    ends = {"x": [x.low, x.high, x.start, x.end], "y": [y.low, y.high, y.start, y.end], "log": y.log}
    return {"stage": stage, "series": columns, "last": last, "top": TOP, "bottom": HEIGHT - BOTTOM, **ends}
