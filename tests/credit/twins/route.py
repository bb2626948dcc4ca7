"""Twins of ``credit.route``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from tests.credit.plain import Answer, Table, Values, grouped, relative, twin


def question(table: Table):
    return lambda leaf: table.question[leaf]


def signed(table: Table, *, scale: bool) -> tuple[Values, set[int]]:
    """GRPO's advantage, 0 where the reward is the group's mean but for rounding."""
    values, varying = relative(table, table.totals, question(table), scale=scale)
    centred, _ = relative(table, table.totals, question(table), scale=False)
    members = grouped(table.votes, question(table))
    for leaf in values:
        largest = max(abs(table.totals[vote]) for vote in members[table.question[leaf]])
        if abs(centred[leaf]) <= 1e-6 * largest:
            values[leaf] = 0.0
    return values, varying


def turns(table: Table, leaf: int) -> list[int]:
    """Nodes of a path that the policy wrote."""
    return [node for node in table.paths[leaf] if table.tokens[node]]


def contexts(table: Table) -> dict[int, list[int]]:
    """Leaves of each episode."""
    return grouped(table.leaves, lambda leaf: table.episode[leaf])


def onward(table: Table, leaf: int, name: str) -> set[int]:
    """Nodes of a path from the first with a mark on."""
    found: set[int] = set()
    for node in table.paths[leaf]:
        if found or table.notes[name][node] > 0:
            found.add(node)
    return found


@twin(
    {"prefix_reward": 0.5, "pass_mark": 0.8, "margin": 0, "keep_prefix": False},
    {"prefix_reward": 0.3, "pass_mark": 1.0, "margin": 1, "keep_prefix": True},
)
def first_error(table: Table, *, prefix_reward: float, pass_mark: float, margin: int, keep_prefix: bool) -> Answer:
    verified: dict[int, set[int]] = {}
    for leaf, reward in table.totals.items():
        suffix = onward(table, leaf, "fault")
        before = [node for node in turns(table, leaf) if node not in suffix]
        wrong = reward < pass_mark and bool(suffix)
        verified[leaf] = set(before[: max(len(before) - margin, 0)]) if wrong else set()

    def earned(leaf: int, node: int) -> float:
        return prefix_reward if node in verified[leaf] else table.totals[leaf]

    means, own = {}, contexts(table)
    for vote in table.votes:
        pairs = [(leaf, node) for leaf in own[table.episode[vote]] for node in turns(table, leaf)]
        tokens = sum(table.tokens[node] for _, node in pairs)
        total = sum(earned(*pair) * table.tokens[pair[1]] for pair in pairs)
        means[vote] = total / tokens if tokens else table.totals[vote]
    members = grouped(table.votes, question(table))
    advantage, moved = {}, set()
    for leaf in table.totals:
        peers = members[table.question[leaf]]
        baseline = statistics.fmean(means[vote] for vote in peers)
        largest = max(prefix_reward, *(abs(table.totals[vote]) for vote in peers))
        for node in table.paths[leaf]:
            value = earned(leaf, node) - baseline
            value = value if abs(value) > 1e-6 * largest else 0.0
            advantage[leaf, node] = max(value, 0.0) if keep_prefix and node in verified[leaf] else value
        if any(advantage[leaf, node] for node in turns(table, leaf)):
            moved.add(table.question[leaf])
    return Answer(advantage, {leaf for leaf in table.totals if table.question[leaf] in moved})


def masked(table: Table, nodes: Iterable[int]) -> set[tuple[int, int]]:
    """These nodes, on every path."""
    gone = set(nodes)
    return {(leaf, node) for leaf in table.leaves for node in table.paths[leaf] if node in gone}


@twin({"scale": True}, {"scale": False})
def channels(table: Table, *, scale: bool) -> Answer:
    advantage, varying, named = {}, set(), set()
    for c, weight in enumerate(table.weights):
        values = {leaf: table.rewards[leaf][c] for leaf in table.totals}
        found, differs = relative(table, values, question(table), scale=scale)
        for leaf in table.totals:
            for node in turns(table, leaf):
                if table.notes["channel"][node] == c:
                    named.add(node)
                    advantage[leaf, node] = weight * found[leaf]
                    varying |= {leaf} & differs
    return Answer(advantage, varying, masked(table, set(range(len(table.end))) - named))


@twin({"scale": True}, {"scale": False})
def answer_masked(table: Table, *, scale: bool) -> Answer:
    values, varying = relative(table, table.totals, question(table), scale=scale)
    answers = [node for node, channel in enumerate(table.notes["channel"]) if channel == 1]
    return Answer(table.everywhere(values), varying, masked(table, answers))


@twin(
    {"summary_weight": 0.3, "action_weight": 0.7, "apart": True, "scale": True},
    {"summary_weight": 2.0, "action_weight": 1.0, "apart": False, "scale": False},
)
def summary_action(
    table: Table, *, summary_weight: float, action_weight: float, apart: bool, scale: bool
) -> Answer:  # fmt: skip
    values, varying = relative(table, table.totals, question(table), scale=scale)
    tokens = {True: 0, False: 0}
    for leaf in varying:
        for node in table.paths[leaf]:
            tokens[table.notes["channel"][node] == 1] += table.tokens[node]
    factor = {True: summary_weight, False: action_weight}
    if apart:
        factor = {kind: weight * sum(tokens.values()) / max(tokens[kind], 1) for kind, weight in factor.items()}
    advantage = {
        (leaf, node): value * factor[table.notes["channel"][node] == 1]
        for leaf, value in values.items()
        for node in table.paths[leaf]
    }
    return Answer(advantage, varying)


@twin(
    {"negative": 0.0, "keep_last": True, "scale": True},
    {"negative": 0.5, "keep_last": False, "scale": False},
)
def evidence(table: Table, *, negative: float, keep_last: bool, scale: bool) -> Answer:
    values, varying = signed(table, scale=scale)
    advantage, out = {}, set()
    for leaf, value in values.items():
        last = turns(table, leaf)[-1:]
        for node in table.paths[leaf]:
            share = min(max(table.notes["support"][node], 0.0), 1.0)
            if keep_last and node in last:
                share = 1.0
            share = share if value > 0 else negative if value < 0 else 0.0
            advantage[leaf, node] = share * value
            if not share:
                out.add((leaf, node))
    return Answer(advantage, varying, out)


@twin({"scale": True}, {"scale": False})
def fatal_aware(table: Table, *, scale: bool) -> Answer:
    values, varying = relative(table, table.totals, question(table), scale=scale)
    lost = {leaf: onward(table, leaf, "fatal") for leaf in table.leaves}
    values = {leaf: max(value, 0.0) if lost[leaf] else value for leaf, value in values.items()}
    return Answer(table.everywhere(values), varying, {(leaf, node) for leaf in lost for node in lost[leaf]})
