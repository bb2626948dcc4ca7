"""Twins of ``credit.tree``."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

from tests.credit.plain import Answer, Table, Values, relative, twin


@twin({"scale": True}, {"scale": False})
def tree_grpo(table: Table, *, scale: bool) -> Answer:
    across, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=scale)
    inside, also = relative(table, table.totals, table.root, scale=scale)
    return Answer(table.everywhere({leaf: inside[leaf] + across[leaf] for leaf in across}), varying | also)


@twin({"scale": True}, {"scale": False})
def tree_intra(table: Table, *, scale: bool) -> Answer:
    values, varying = relative(table, table.totals, table.root, scale=scale)
    return Answer(table.everywhere(values), varying)


@twin({"scale": True}, {"scale": False})
def tree_inter(table: Table, *, scale: bool) -> Answer:
    values, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=scale)
    return Answer(table.everywhere(values), varying)


def below(table: Table) -> dict[int, list[float]]:
    """Rewards of the scored episodes through each node."""
    found = {}
    for node, leaves in table.below.items():
        first = {table.episode[leaf]: table.totals[leaf] for leaf in leaves if leaf in table.totals}
        if first:
            found[node] = list(first.values())
    return found


def group_of(table: Table, shared_root: bool):
    return (lambda leaf: table.question[leaf]) if shared_root else table.root


def spread(table: Table, leaf_group) -> dict[int, tuple[float, float]]:
    """Mean and deviation of the rewards of each leaf's group; the deviation is 1 where they are equal.

    A tree whose leaves are all further contexts of episodes that ended before it has no rewards of its own.
    """
    groups = defaultdict(list)
    for leaf in table.votes:
        groups[leaf_group(leaf)].append(table.totals[leaf])
    moments = {
        key: (statistics.fmean(x), statistics.pstdev(x) if max(x) > min(x) else 1.0) for key, x in groups.items()
    }
    return {leaf: moments.get(leaf_group(leaf), (0.0, 1.0)) for leaf in table.totals}


def node_values(table: Table, shared_root: bool) -> dict[int, float]:
    values = {node: statistics.fmean(rewards) for node, rewards in below(table).items()}
    if shared_root:
        for leaf, (mean, _) in spread(table, group_of(table, True)).items():
            values[table.root(leaf)] = mean
    return values


def by_node(table: Table, of_leaf, of_node) -> dict[tuple[int, int], float]:
    return {
        (leaf, node): of_node(leaf, node, table.parent[node])
        for leaf in of_leaf
        for node in table.paths[leaf]
        if table.parent[node] >= 0
    }


@twin(
    {"global_weight": 1.0, "local_weight": 1.0, "reweight": True, "shared_root": True},
    {"global_weight": 0.5, "local_weight": 2.0, "reweight": False, "shared_root": False},
)
def tree_rl(table: Table, *, global_weight: float, local_weight: float, reweight: bool, shared_root: bool) -> Answer:
    values, rewards = node_values(table, shared_root), below(table)

    def one(leaf, node, parent):
        overall, local = values[node] - values[table.root(leaf)], values[node] - values[parent]
        total = global_weight * overall + local_weight * local
        return total / math.sqrt(len(rewards[node])) if reweight else total

    _, varying = relative(table, table.totals, group_of(table, shared_root), scale=False)
    return Answer(by_node(table, table.totals, one), varying)


@twin({"scale": True, "shared_root": True}, {"scale": True, "shared_root": False})
def tree_step(table: Table, *, scale: bool, shared_root: bool) -> Answer:
    values, moments = node_values(table, shared_root), spread(table, group_of(table, shared_root))

    def one(leaf, node, parent):
        return (values[node] - values[parent]) / (moments[leaf][1] if scale else 1.0)

    _, varying = relative(table, table.totals, group_of(table, shared_root), scale=False)
    return Answer(by_node(table, table.totals, one), varying)


@twin({"scale": True, "whole_turn": True}, {"scale": False, "whole_turn": True})
def tempo(table: Table, *, scale: bool, whole_turn: bool) -> Answer:
    assert whole_turn
    group, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=scale)
    steps = tree_step(table, scale=scale, shared_root=True).advantage
    return Answer({key: value + steps.get(key, 0.0) for key, value in table.everywhere(group).items()}, varying)


@twin(
    {"temperature": 0.5, "difference": False, "scale": True, "shared_root": True},
    {"temperature": 2.0, "difference": True, "scale": False, "shared_root": False},
)
def child_softmax(table: Table, *, temperature: float, difference: bool, scale: bool, shared_root: bool) -> Answer:
    leaf_values, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=scale)
    values: Values = dict(leaf_values)
    children = defaultdict(list)
    for node in sorted(table.below, reverse=True):  # children come after their parent
        if node in children:
            values[node] = soft(children[node], temperature)
        if node in values and table.parent[node] >= 0:
            children[table.parent[node]].append(values[node])
    if shared_root:
        roots = defaultdict(list)
        for leaf in table.totals:
            if len(table.paths[leaf]) > 1 and table.root(leaf) not in roots[table.question[leaf]]:
                roots[table.question[leaf]].append(table.root(leaf))
        for members in roots.values():
            value = soft([value for root in members for value in children[root]], temperature)
            values.update(dict.fromkeys(members, value))
    found = {}
    for leaf in table.totals:
        for node in table.paths[leaf]:
            parent = table.parent[node] if table.parent[node] >= 0 else node
            found[leaf, node] = values[node] - values[parent] if difference else values[node]
    return Answer(found, varying)


def soft(values: list[float], temperature: float) -> float:
    weights = [math.exp((value - max(values)) / temperature) for value in values]
    return sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)


def family(table: Table, shared_root: bool):
    """What the children of one node share."""

    def one(node):
        parent = table.parent[node]
        return ("question", table.question[node]) if shared_root and table.parent[parent] < 0 else parent

    return one


def families(table: Table, values: dict[int, float], key) -> dict:
    found = defaultdict(list)
    for node, value in values.items():
        if table.parent[node] >= 0:
            found[key(node)].append(value)
    return found


@twin({"scale": True, "shared_root": True}, {"scale": False, "shared_root": False})
def siblings(table: Table, *, scale: bool, shared_root: bool) -> Answer:
    values, key = node_values(table, False), family(table, shared_root)
    members = {
        name: (statistics.fmean(x), statistics.pstdev(x) if scale else 1.0, max(x) - min(x) > 1e-9)
        for name, x in families(table, values, key).items()
    }

    def one(leaf, node, parent):
        mean, deviation, differ = members[key(node)]
        return (values[node] - mean) / deviation if differ else 0.0

    _, varying = relative(table, table.totals, group_of(table, shared_root), scale=False)
    return Answer(by_node(table, table.totals, one), varying)


@twin({"scale": True}, {"scale": False})
def through_node(table: Table, *, scale: bool) -> Answer:
    """As ContextPilot has it: the mean of the episodes' advantages."""
    group, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=scale)
    means = {}
    for node, leaves in table.below.items():
        first = {table.episode[leaf]: group[leaf] for leaf in leaves if leaf in group}
        if first:
            means[node] = statistics.fmean(first.values())
    return Answer({(leaf, node): means[node] for leaf in group for node in table.paths[leaf]}, varying)


@twin(
    {"mix": 0.5, "gain": 1.0, "scale": True, "shared_root": True},
    {"mix": 0.25, "gain": 0.5, "scale": False, "shared_root": False},
)
def path_level(table: Table, *, mix: float, gain: float, scale: bool, shared_root: bool) -> Answer:
    values, key = node_values(table, shared_root), family(table, shared_root)
    members = families(table, values, key)
    shaped, groups = {}, defaultdict(list)
    for node, value in values.items():
        if table.parent[node] < 0 or not table.tokens[node]:
            continue
        peers, parent = members[key(node)], values[table.parent[node]]
        others = (sum(peers) - value) / (len(peers) - 1) if len(peers) > 1 else parent
        shaped[node] = value + gain * (value - (1 - mix) * parent - mix * others)
        groups[table.question[node]].append(shaped[node])
    moments = {name: (statistics.fmean(x), statistics.pstdev(x), max(x) - min(x) > 1e-9) for name, x in groups.items()}

    def one(leaf, node, parent):
        if node not in shaped:
            return 0.0
        mean, deviation, differ = moments[table.question[node]]
        return (shaped[node] - mean) / (deviation if scale else 1.0) if differ else 0.0

    varying = {leaf for leaf in table.totals if moments.get(table.question[leaf], (0, 0, False))[2]}
    return Answer(by_node(table, table.totals, one), varying)
