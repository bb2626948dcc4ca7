"""Twins of ``credit.turn``."""

from __future__ import annotations

import statistics
from collections import defaultdict

from rlsearch.tree.forest import Kind
from tests.credit.plain import Answer, Table, relative, twin

Turns = dict[tuple[int, int], float]  # by (leaf, node)


def turns(table: Table) -> dict[int, list[int]]:
    """The nodes that the policy wrote on each scored path."""
    return {leaf: [node for node in table.paths[leaf] if table.tokens[node]] for leaf in table.totals}


def normalised(values: Turns, group, *, scale: bool) -> tuple[Turns, set[int]]:
    """Each turn's value against the turns of its group, and the leaves with a turn in a group that varies."""
    members = defaultdict(list)
    for key, value in values.items():
        members[group(*key)].append(value)
    found, varying = {}, set()
    moments = {name: (statistics.fmean(x), statistics.pstdev(x), max(x) - min(x) > 1e-9) for name, x in members.items()}
    for (leaf, node), value in values.items():
        mean, deviation, differ = moments[group(leaf, node)]
        found[leaf, node] = (value - mean) / (deviation if scale else 1.0) if differ else 0.0
        if differ:
            varying.add(leaf)
    return found, varying


def returns(table: Table, discount: float) -> Turns:
    found = {}
    for leaf, path in turns(table).items():
        later = None
        for node in reversed(path):
            after = table.totals[leaf] if later is None else discount * later
            later = table.notes["step_reward"][node] + after
            found[leaf, node] = later
    return found


def rewards(table: Table) -> Turns:
    return {(leaf, node): table.notes["step_reward"][node] for leaf, path in turns(table).items() for node in path}


@twin({"discount": 0.5, "scale": True}, {"discount": 1.0, "scale": False})
def step_return(table: Table, *, discount: float, scale: bool) -> Answer:
    return Answer(*normalised(returns(table, discount), lambda leaf, node: table.question[leaf], scale=scale))


@twin({"discount": 0.5, "scale": True}, {"discount": 1.0, "scale": False})
def turn_return(table: Table, *, discount: float, scale: bool) -> Answer:
    values = returns(table, discount)
    return Answer(*normalised(values, lambda leaf, node: (table.question[leaf], table.turn[node]), scale=scale))


@twin({"discount": 0.5}, {"discount": 1.0})
def turn_relative(table: Table, *, discount: float) -> Answer:
    attempts: dict[int, list[list[int]]] = {}
    for leaf, path in turns(table).items():
        attempts[leaf] = [[]]
        for node in path:
            attempts[leaf][-1].append(node)
            if table.kind[node] == Kind.ANSWER:
                attempts[leaf].append([])
        if not attempts[leaf][-1]:
            attempts[leaf].pop()
    earned = {leaf: [sum(table.notes["step_reward"][node] for node in nodes) for nodes in parts]
              for leaf, parts in attempts.items()}  # fmt: skip
    groups = defaultdict(list)
    for leaf, parts in earned.items():
        if parts:
            parts[-1] += table.totals[leaf]
        for k, value in enumerate(parts):
            groups[table.question[leaf], k].append(value)
    found, varying = {}, set()
    for leaf, parts in earned.items():
        later = 0.0
        for k in reversed(range(len(parts))):
            peers = groups[table.question[leaf], k]
            differ = max(peers) > min(peers)
            others = (sum(peers) - parts[k]) / (len(peers) - 1) if differ else parts[k]
            later = parts[k] - others + discount * later
            found.update({(leaf, node): later for node in attempts[leaf][k]})
            if differ:
                varying.add(leaf)
    return Answer(found, varying)


def with_outcome(table: Table, credit: Turns, coefficient: float, *, scale: bool) -> tuple[Turns, set[int]]:
    group, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=scale)
    return {key: group[key[0]] + coefficient * value for key, value in credit.items()}, varying


@twin(
    {"coefficient": 0.5, "over": "episode", "scale": True},
    {"coefficient": 2.0, "over": "turn", "scale": False},
)
def turn_centred(table: Table, *, coefficient: float, over: str, scale: bool) -> Answer:
    group = {
        "episode": lambda leaf, node: table.episode[leaf],
        "turn": lambda leaf, node: (table.question[leaf], table.turn[node]),
    }[over]
    centred, moves = normalised(rewards(table), group, scale=False)
    found, varying = with_outcome(table, centred, coefficient, scale=scale)
    return Answer(found, varying | moves)


@twin(
    {"coefficient": 0.5, "to_go": False, "scale": True},
    {"coefficient": 2.0, "to_go": True, "scale": False},
)
def process_outcome(table: Table, *, coefficient: float, to_go: bool, scale: bool) -> Answer:
    process, differs = normalised(rewards(table), lambda leaf, node: table.question[leaf], scale=scale)
    if to_go:
        for leaf, path in turns(table).items():
            for node, later in zip(path[-2::-1], path[:0:-1], strict=True):
                process[leaf, node] += process[leaf, later]
    found, varying = with_outcome(table, process, coefficient, scale=scale)
    return Answer(found, varying | differs)
