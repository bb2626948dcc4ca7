"""What a question has earned so far: a value that outlives the step, as a baseline for a single rollout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlsearch.errors import InputError


@dataclass(frozen=True)
class ValueConfig:
    """SPO's tracker (arXiv 2509.13232, section 3.1) with a constant memory.

    Each question's value is ``wins / weight``, both of which are multiplied by ``memory`` before a step's rewards are
    added: the mean of a Beta posterior over rewards between 0 and 1 that forgets.
    """

    memory: float  # in (0, 1]: how much of the past a step keeps
    prior: float  # the value of a question never seen
    prior_weight: float  # how many rewards that counts for

    def __post_init__(self):
        if not 0 < self.memory <= 1 or self.prior_weight <= 0:
            raise InputError(
                f"config.rl.values: memory {self.memory} must be in (0, 1] and prior_weight {self.prior_weight} above 0"
            )


class Values:
    """Values of questions by id; ``record`` and ``restore`` carry them over a stop."""

    def __init__(self, config: ValueConfig):
        self.config, self.known = config, {}

    def get(self, question: str) -> float:
        """The value of a question, before this step's rewards."""
        wins, weight = self.known.get(question, self._prior())
        return wins / weight

    def add(self, question: str, rewards: Sequence[float]) -> None:
        """Takes the rewards of a step in; those that could not be scored (NaN) are left out."""
        scored = [reward for reward in rewards if not math.isnan(reward)]
        if not scored:
            return
        wins, weight = self.known.get(question, self._prior())
        keep = self.config.memory
        self.known[question] = (keep * wins + sum(scored), keep * weight + len(scored))

    def record(self) -> dict[str, list[float]]:
        """Everything known, for JSON."""
        return {question: list(pair) for question, pair in self.known.items()}

    def restore(self, record: dict[str, list[float]]) -> None:
        """Goes on from what ``record`` gave."""
        self.known = {question: (pair[0], pair[1]) for question, pair in record.items()}

    def _prior(self) -> tuple[float, float]:
        return self.config.prior * self.config.prior_weight, self.config.prior_weight
