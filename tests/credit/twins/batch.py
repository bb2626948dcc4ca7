"""Twins of ``credit.batch``."""

from __future__ import annotations

import math
import statistics

from tests.credit.plain import Answer, Table, Values, grouped, relative, twin


def standardised(table: Table, values: Values) -> Values:
    """Divided by the deviation of the votes."""
    deviation = statistics.pstdev([values[leaf] for leaf in table.votes] or [0.0])
    return {leaf: value / deviation if deviation else 0.0 for leaf, value in values.items()}


@twin({})
def reinforce_baseline(table: Table) -> Answer:
    values, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=False)
    return Answer(table.everywhere(standardised(table, values)), varying)


@twin({})
def batch_normalised(table: Table) -> Answer:
    values, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=True)
    return Answer(table.everywhere(standardised(table, values)), varying)


def differences(table: Table) -> Values:
    return {leaf: value - table.notes["baseline"][leaf] for leaf, value in table.totals.items()}


@twin({})
def persistent(table: Table) -> Answer:
    values = differences(table)
    votes = [values[leaf] for leaf in table.votes]
    if len(set(votes)) < 2:
        return Answer({}, set())
    mean, deviation = statistics.fmean(votes), statistics.pstdev(votes)
    return Answer(table.everywhere({leaf: (v - mean) / deviation for leaf, v in values.items()}), set(values))


@twin({})
def persistent_weighted(table: Table) -> Answer:
    """Every sampled token is one entry of a list, and the list is standardised."""
    values = differences(table)
    tokens = [value for leaf, value in values.items() for node in table.paths[leaf] for _ in range(table.tokens[node])]
    if len(set(tokens)) < 2:
        return Answer({}, set())
    mean, deviation = statistics.fmean(tokens), statistics.pstdev(tokens)
    return Answer(table.everywhere({leaf: (v - mean) / deviation for leaf, v in values.items()}), set(values))


@twin({"smoothing": 0.5, "strength": 1.0}, {"smoothing": 1.0, "strength": 0.0})
def task_reweighted(table: Table, *, smoothing: float, strength: float) -> Answer:
    def name(leaf: int) -> tuple:
        return table.notes["task"][leaf], table.question[leaf]

    totals = table.totals
    questions = {key: [totals[leaf] for leaf in votes] for key, votes in grouped(table.votes, name).items()}
    questions = {key: rewards for key, rewards in questions.items() if len(rewards) > 1}
    usual, spread = {}, {}
    for task, keys in grouped(questions, lambda key: key[0]).items():
        usual[task] = statistics.fmean(statistics.fmean(questions[key]) for key in keys)
        spread[task] = math.sqrt(statistics.fmean(statistics.pvariance(questions[key]) for key in keys))
    slack = 1e-5 * max(map(abs, totals.values()), default=0.0)
    values, varying = {}, set()
    for leaf, reward in totals.items():
        key = name(leaf)
        if key not in questions or min(questions[key]) == max(questions[key]):
            continue
        varying.add(leaf)
        mean, rewards = statistics.fmean(questions[key]), questions[key]
        threshold = smoothing * mean + (1 - smoothing) * usual[key[0]]
        rate = sum(r > threshold + slack for r in rewards) / len(rewards)
        weight = math.exp(strength * (0.5 - rate if reward > mean else rate - 0.5))
        values[leaf] = weight * (reward - mean) / spread[key[0]]
    return Answer(table.everywhere(values), varying)
