"""Twins of ``credit.group``."""

from __future__ import annotations

from tests.credit.plain import Answer, Table, grouped, relative, twin


@twin({"scale": True}, {"scale": False})
def grpo(table: Table, *, scale: bool) -> Answer:
    values, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=scale)
    return Answer(table.everywhere(values), varying)


@twin({})
def rloo(table: Table) -> Answer:
    values, varying = {}, set()
    members = grouped(table.votes, lambda leaf: table.question[leaf])
    for leaf, value in table.totals.items():
        first = next(vote for vote in members[table.question[leaf]] if table.episode[vote] == table.episode[leaf])
        others = [table.totals[vote] for vote in members[table.question[leaf]] if vote != first]
        values[leaf] = value - sum(others) / len(others) if others else 0.0
        if any(other != value for other in others):
            varying.add(leaf)
    return Answer(table.everywhere(values), varying)


@twin({"scale": True}, {"scale": False})
def active_set(table: Table, *, scale: bool) -> Answer:
    executed = {leaf: value for leaf, value in table.totals.items() if table.notes["attempt"][leaf] >= 0}
    values, varying = relative(table, executed, lambda leaf: table.question[leaf], scale=scale)
    planned = [leaf for leaf in table.leaves if table.notes["attempt"][leaf] < 0]
    return Answer(table.everywhere(values), varying, {(leaf, node) for leaf in planned for node in table.paths[leaf]})
