"""Charts: one a measure, stages apart, nothing that was written left out."""

from __future__ import annotations

import itertools
import math
import re

from rlsearch.report import curves
from rlsearch.report.read import Run


def run(lines, evaluations=()):
    metrics = {}
    for line in lines:
        metrics.setdefault(line["stage"], []).append(line)
    return Run("run", None, metrics, list(evaluations), [], None, ())


def test_stages_are_apart_with_warm_up_first():
    lines = [{"stage": stage, "step": step, "loss": 1.0 / step} for stage in ("rl", "warmup") for step in (1, 2, 3)]
    html, records = curves.render(run(lines))
    assert html.index("Warm-up") < html.index("Reinforcement learning")
    assert [record["stage"] for record in records] == ["warmup", "rl"]


def test_a_metric_that_no_panel_names_has_its_own_chart():
    html, records = curves.render(run([{"stage": "rl", "step": s, "valid<actions": s} for s in (1, 2)]))
    assert "1 more measures" in html
    assert "Valid&lt;actions" in html
    assert records[0]["series"][0]["values"] == [1, 2]


def test_values_that_are_not_finite_are_gaps():
    lines = [{"stage": "rl", "step": i, "kl": v} for i, v in enumerate((0.1, math.nan, 0.2, math.inf, None, 0.3))]
    html, records = curves.render(run(lines))
    assert records[0]["series"][0]["values"] == [0.1, None, 0.2, None, None, 0.3]
    assert "nan" not in html.lower()
    assert len(re.findall("M", re.search(r'class="line c0"><path d="([^"]+)"', html).group(1))) == 3


def test_held_out_evaluations_are_points_on_the_chart_of_the_same_measure():
    lines = [{"stage": "rl", "step": s, "exact_match": 0.1 * s, "reward": 0.1} for s in range(1, 5)]
    found = [{"stage": "rl", "step": s, "name": "heldout", "exact_match": 0.5, "searches": 1.0} for s in (0, 4)]
    _, records = curves.render(run(lines, found))
    assert [series["label"] for series in records[0]["series"]] == ["reward", "exact match", "held out"]
    assert records[0]["x"][:2] == [0, 4]


def test_a_long_series_is_averaged_over_blocks():
    lines = [{"stage": "rl", "step": s, "loss": float(s % 2)} for s in range(10_000)]
    _, records = curves.render(run(lines))
    values = records[0]["series"][0]["values"]
    assert len(values) <= curves.MOST_POINTS
    assert abs(sum(values) / len(values) - 0.5) < 0.01


def test_labels_at_the_ends_of_lines_do_not_cover_each_other():
    lines = [{"stage": "rl", "step": s, "path_tokens": 9, "tree_tokens": 9, "sampled_tokens": 9} for s in (1, 2)]
    html, _ = curves.render(run(lines))
    heights = sorted(float(y) for y in re.findall(r"<text class=label x=[\d.]+ y=([\d.]+)>", html))
    assert len(heights) == 3
    assert all(b - a >= 13 for a, b in itertools.pairwise(heights))
