"""Twins of ``credit.redistribute``."""

from __future__ import annotations

import statistics
from collections import defaultdict

from tests.credit.plain import Answer, Table, grouped, relative, twin
from tests.credit.twins.route import contexts, question, signed, turns


def support(table: Table, node: int) -> float:
    return max(table.notes["support"][node], 0.0)


@twin(
    {"strength": 1.0, "floor": 0.2, "scale": True},
    {"strength": 3.0, "floor": 0.0, "scale": False},
)
def self_credit(table: Table, *, strength: float, floor: float, scale: bool) -> Answer:
    values, varying = signed(table, scale=scale)
    cited, size = defaultdict(float), defaultdict(int)
    for leaf, value in values.items():
        side = (value > 0) - (value < 0)
        size[table.question[leaf], side] += 1
        for node in turns(table, leaf):
            cited[table.question[leaf], table.notes["action"][node], side] += support(table, node)
    advantage = {}
    for leaf, value in values.items():
        side, q = (value > 0) - (value < 0), table.question[leaf]
        for node in turns(table, leaf):
            action = table.notes["action"][node]
            good, bad = (cited[q, action, s] / max(size[q, s], 1) for s in (1, -1))
            contrast = (good - bad) / (good + bad) if action >= 0 and good + bad else 0.0
            advantage[leaf, node] = value * max(1 + strength * support(table, node) * contrast * side, floor)
    return Answer(advantage, varying)


@twin({"decay": 0.5, "scale": True}, {"decay": 0.0, "scale": False}, {"decay": 1.0, "scale": True})
def graded(table: Table, *, decay: float, scale: bool) -> Answer:
    values, varying = signed(table, scale=scale)
    first = {table.episode[vote]: vote for vote in table.votes}
    for votes in grouped(table.votes, question(table)).values():
        passing = [vote for vote in votes if values[vote] > 0]
        if not passing:
            continue
        rank = {vote: max(table.notes["rank"][vote], 0.0) for vote in passing}
        weight = {vote: decay ** (rank[vote] - min(rank.values())) for vote in passing}
        total = sum(values[vote] for vote in passing) / sum(values[vote] * weight[vote] for vote in passing)
        values |= {vote: values[vote] * weight[vote] * total for vote in passing}
    return Answer(table.everywhere({leaf: values[first[table.episode[leaf]]] for leaf in values}), varying)


@twin(
    {"floor": 0.2, "over": "tokens", "scale": True},
    {"floor": 0.0, "over": "nodes", "scale": False},
)
def mass_preserving(table: Table, *, floor: float, over: str, scale: bool) -> Answer:
    values, varying = relative(table, table.totals, question(table), scale=scale)
    advantage = {}
    for leaves in contexts(table).values():
        pairs = [(leaf, node) for leaf in leaves if leaf in values for node in turns(table, leaf)]
        mass = [table.tokens[node] if over == "tokens" else 1 for _, node in pairs]
        if not pairs:
            continue
        mean = sum(m * support(table, node) for m, (_, node) in zip(mass, pairs, strict=True)) / sum(mass)
        for leaf, node in pairs:
            share = support(table, node) / mean if mean else 1.0
            advantage[leaf, node] = values[leaf] * (floor + (1 - floor) * share)
    return Answer(advantage, varying)


@twin(
    {"orchestrator": 0, "attenuation": 0.5, "penalty": 0.3, "cap": 2, "scale": True},
    {"orchestrator": 1, "attenuation": 0.25, "penalty": 0.3, "cap": 5, "scale": False},
)
def topology(
    table: Table, *, orchestrator: int, attenuation: float, penalty: float, cap: int, scale: bool
) -> Answer:  # fmt: skip
    roles, own = table.nodes.role.tolist(), contexts(table)
    plan = {leaf: [node for node in turns(table, leaf) if roles[node] == orchestrator] for leaf in table.leaves}
    run = {leaf: [node for node in turns(table, leaf) if roles[node] != orchestrator] for leaf in table.leaves}
    carries = {leaf for leaf in table.leaves if table.notes["support"][leaf] > 0}
    advantage, varying = {}, set()
    for leaves in grouped(table.totals, question(table)).values():
        plans, runs = {}, {}
        for leaf in leaves:
            reward = table.totals[leaf]
            if plan[leaf]:
                broken = sum(table.notes["fault"][node] > 0 for node in plan[leaf])
                plans[leaf] = reward - penalty * min(broken, cap)
            if run[leaf]:
                split = any(other in carries and run[other] for other in own[table.episode[leaf]])
                runs[leaf] = attenuation * reward if split and leaf not in carries else reward
        for earned, nodes in ((plans, plan), (runs, run)):
            if len(earned) < 2 or max(earned.values()) - min(earned.values()) < 1e-9:
                continue
            mean = statistics.fmean(earned.values())
            deviation = statistics.pstdev(earned.values()) if scale else 1.0
            varying |= set(earned)
            advantage |= {(leaf, node): (x - mean) / deviation for leaf, x in earned.items() for node in nodes[leaf]}
    return Answer(advantage, varying)
