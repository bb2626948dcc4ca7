"""Twins of ``credit.group``."""

from __future__ import annotations

from tests.credit.plain import Answer, Table, relative, twin


@twin({"scale": True}, {"scale": False})
def grpo(table: Table, *, scale: bool) -> Answer:
    values, varying = relative(table, table.totals, lambda leaf: table.question[leaf], scale=scale)
    return Answer(table.everywhere(values), varying)
