"""Twins of ``credit.strata``."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

from tests.credit.plain import Answer, Table, grouped, relative, twin


@twin({"blend": 0.75}, {"blend": 1.0}, {"blend": 0.0})
def stratified(table: Table, *, blend: float) -> Answer:
    def stratum(leaf: int) -> tuple:
        return table.question[leaf], table.notes["stratum"][leaf]

    inside, varies = relative(table, table.totals, stratum, scale=True)
    across, also = relative(table, table.totals, lambda leaf: table.question[leaf], scale=True)
    values = {leaf: blend * inside[leaf] + (1 - blend) * across[leaf] for leaf in across}
    return Answer(table.everywhere(values), varies if blend == 1 else also)


@twin({"scale": True}, {"scale": False})
def outcome_conditioned(table: Table, *, scale: bool) -> Answer:
    answer = Answer({}, set())
    terms = {leaf: [0.0 if math.isnan(r) else r for r in table.rewards[leaf]] for leaf in table.totals}
    objectives = [j for j, weight in enumerate(table.weights) if weight]
    found = {
        j: relative(
            table, {leaf: row[j] for leaf, row in terms.items()},
            lambda leaf, j=j: (table.question[leaf], *terms[leaf][:j]), scale=scale,
        )
        for j in objectives
    }  # fmt: skip
    for leaf in table.leaves:
        for node in table.paths[leaf]:
            channel = table.notes["channel"][node]
            if channel not in objectives:
                answer.masked.add((leaf, node))
            elif leaf in table.totals:
                values, varying = found[channel]
                answer.advantage[leaf, node] = table.weights[int(channel)] * values[leaf]
                if leaf in varying and table.tokens[node]:
                    answer.varies.add(leaf)
    return answer


def standing(value: float, peers: list[float], scale: bool) -> float | None:
    """Against its peers, itself among them; None where they are all equal."""
    if min(peers) == max(peers):
        return None
    return (value - statistics.fmean(peers)) / (statistics.pstdev(peers) if scale else 1.0)


@twin({"progress": True, "scale": True}, {"progress": False, "scale": False})
def subproblem(table: Table, *, progress: bool, scale: bool) -> Answer:
    index, answer = table.notes["subproblem"], Answer({}, set())
    earned = {}
    for leaf in table.leaves:
        answering = [node for node in table.paths[leaf] if table.tokens[node] and index[node] >= 0]
        answer.masked |= {(leaf, node) for node in table.paths[leaf] if node not in answering}
        failed = False
        for k, nodes in grouped(answering, lambda node: index[node]).items():  # in the order in which they begin
            whole = sum(table.notes["step_reward"][node] for node in nodes)
            if leaf in table.totals:
                earned[leaf, k] = 0.0 if progress and failed else whole, nodes
            failed |= whole <= 0
    peers = defaultdict(list)
    for (leaf, k), (reward, _) in earned.items():
        peers[table.question[leaf], k].append(reward)
    for (leaf, k), (reward, nodes) in earned.items():
        value = standing(reward, peers[table.question[leaf], k], scale)
        if value is not None:
            answer.varies.add(leaf)
            answer.advantage |= {(leaf, node): value for node in nodes}
    return answer


@twin({"discount": 0.5, "scale": True}, {"discount": 1.0, "scale": False})
def step_peer(table: Table, *, discount: float, scale: bool) -> Answer:
    answer, returns = Answer({}, set()), {}
    for leaf, total in table.totals.items():
        steps = [node for node in table.paths[leaf] if table.tokens[node]]
        rewards = [table.notes["step_reward"][node] for node in steps]
        if steps:
            rewards[-1] += total
        returns[leaf], later = [], 0.0
        for reward in reversed(rewards):
            later = reward + discount * later
            returns[leaf].insert(0, (steps[len(rewards) - 1 - len(returns[leaf])], later))
    peers = grouped(table.votes, lambda leaf: table.question[leaf])
    by_question = grouped(returns, lambda leaf: table.question[leaf])  # further contexts too: they may be the longest
    most = {question: max(len(returns[leaf]) for leaf in leaves) for question, leaves in by_question.items()}
    columns = {
        (question, t): [returns[leaf][t][1] if t < len(returns[leaf]) else 0.0 for leaf in leaves]
        for question, leaves in peers.items() for t in range(most[question])
    }  # fmt: skip
    for leaf, steps in returns.items():
        for t, (node, value) in enumerate(steps):
            advantage = standing(value, columns[table.question[leaf], t], scale)
            if advantage is not None:
                answer.varies.add(leaf)
                answer.advantage[leaf, node] = advantage
    return answer
