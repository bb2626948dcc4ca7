"""Twins of ``credit.tree``."""

from __future__ import annotations

from tests.credit.plain import Answer, Table, relative, twin


@twin({"scale": True}, {"scale": False})
def tree_grpo(table: Table, *, scale: bool) -> Answer:
    across, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=scale)
    inside, also = relative(table, table.totals, table.root, scale=scale)
    return Answer(table.everywhere({leaf: inside[leaf] + across[leaf] for leaf in across}), varying | also)
