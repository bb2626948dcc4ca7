"""Twins of ``credit.vector``."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from statistics import NormalDist

import numpy as np

from tests.credit.plain import Answer, Table, Values, grouped, relative, twin


def normal_scores(table: Table, values: Values) -> Values:
    """The normal quantile of each value's place among the votes of its question."""
    found = {}
    members = grouped(table.votes, lambda leaf: table.question[leaf])
    places = {}
    for question, votes in members.items():
        below, counts = 0, Counter(values[leaf] for leaf in votes)
        for value in sorted(counts):
            places[question, value] = (below + counts[value] / 2) / len(votes)
            below += counts[value]
    for leaf, value in values.items():
        found[leaf] = NormalDist().inv_cdf(places[table.question[leaf], value])
    return found


@twin({"magnitude": 0.5, "shrinkage": 0.25}, {"magnitude": 0.0, "shrinkage": 1.0})
def quantile_whitened(table: Table, *, magnitude: float, shrinkage: float) -> Answer:
    def question(leaf: int) -> int:
        return table.question[leaf]

    scores, active = defaultdict(list), defaultdict(list)
    for j, weight in enumerate(table.weights):
        rows = {leaf: table.rewards[leaf][j] if weight else 0.0 for leaf in table.totals}
        rows = {leaf: 0.0 if math.isnan(value) else value for leaf, value in rows.items()}
        linear, varying = relative(table, rows, question, scale=True)
        ranked, _ = relative(table, normal_scores(table, rows), question, scale=True)
        for leaf in rows:
            scores[leaf].append(magnitude * linear[leaf] + (1 - magnitude) * ranked[leaf])
            active[leaf].append(leaf in varying)
    mix = {}
    for kind, votes in grouped(table.votes, lambda leaf: tuple(active[leaf])).items():
        rows = np.array([scores[leaf] for leaf in votes])
        moments = (1 - shrinkage) * rows.T @ rows / len(votes) + shrinkage * np.eye(len(kind))
        size, axes = np.linalg.eigh(moments)
        mix[kind] = np.array(table.weights) @ (axes / np.sqrt(size)) @ axes.T
    values = {leaf: float(np.dot(scores[leaf], mix[tuple(active[leaf])])) for leaf in table.totals}
    return Answer(table.everywhere(values), {leaf for leaf in values if any(active[leaf])})
