"""Twin of ``credit.potential``."""

from __future__ import annotations

from tests.credit.plain import Answer, Table, twin
from tests.credit.twins.turn import normalised, turns, with_outcome

CHOICES = ("coefficient", "discount", "watermark", "to_go", "relative", "outcome", "scale")


@twin(
    *(dict(zip(CHOICES, chosen, strict=True)) for chosen in [
        (0.5, 1.0, False, False, False, True, True),
        (1.0, 0.5, False, True, True, False, True),
        (2.0, 1.0, True, False, True, True, False),
        (1.0, 0.5, True, True, False, False, False),
    ])
)  # fmt: skip
def potential_shaping(
    table: Table, *, coefficient: float, discount: float, watermark: bool, to_go: bool, relative: bool, outcome: bool,
    scale: bool,
) -> Answer:  # fmt: skip
    phi, shaping = table.notes["potential"], {}
    for leaf, path in turns(table).items():
        before = phi[table.root(leaf)]
        for node in path:
            change = discount * phi[node] - before
            shaping[leaf, node] = max(change, 0.0) if watermark else change
            before = max(before, phi[node]) if watermark else phi[node]
        if to_go:
            for node, later in zip(path[-2::-1], path[:0:-1], strict=True):
                shaping[leaf, node] += discount * shaping[leaf, later]
    if relative:
        shaping, varying = normalised(shaping, lambda leaf, node: table.question[leaf], scale=scale)
    else:
        varying = {leaf for (leaf, _), value in shaping.items() if value}
    if not outcome:
        return Answer({key: coefficient * value for key, value in shaping.items()}, varying)
    found, differs = with_outcome(table, shaping, coefficient, scale=scale)
    return Answer(found, varying | differs)
