"""What the rollouts of a question may cost."""

from __future__ import annotations

from dataclasses import dataclass

from rlsearch.errors import InputError

UNITS = ("tokens", "model_calls", "tool_calls")


@dataclass(frozen=True)
class BudgetConfig:
    """What the rollouts of a question may cost at most: no rollout is begun that could go beyond it."""

    unit: str  # one of UNITS: tokens written, turns written, calls of tools
    of_question: int

    def __post_init__(self):
        if self.unit not in UNITS:
            raise InputError(f"config.sampling.budget.unit is {self.unit!r}; one of {', '.join(UNITS)}")
        if self.of_question < 1:
            raise InputError(
                f"config.sampling.budget.of_question is {self.of_question}; it must be 1 or more, or the budget None"
            )
