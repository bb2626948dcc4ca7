"""Twins of ``credit.critic``: textbook recursions over lists, a path at a time.

``Token`` is a sampled token of one path; what is not sampled is not in the list. An entry of ``RECURSIONS`` is given
the tokens of a path and what each of them earns, and says (advantages, returns), before any whitening.
"""

from __future__ import annotations

import itertools
import statistics
from typing import NamedTuple

from tests.credit.plain import Answer, Table, twin


class Token(NamedTuple):
    node: int
    turn: int
    value: float
    penalty: float


Path = list[Token]
Numbers = list[float]


def gae(path: Path, rewards: Numbers, *, discount: float, lam: float) -> tuple[Numbers, Numbers]:
    """Schulman et al.'s recursion on the temporal differences."""
    values = [token.value for token in path] + [0.0]
    advantages = [0.0] * (len(path) + 1)
    for t in reversed(range(len(path))):
        difference = rewards[t] + discount * values[t + 1] - values[t]
        advantages[t] = difference + discount * lam * advantages[t + 1]
    return advantages[:-1], [a + v for a, v in zip(advantages, values, strict=True)][:-1]


def lambda_return(path: Path, rewards: Numbers, *, discount: float, lam: float) -> tuple[Numbers, Numbers]:
    """Sutton and Barto's, by the n-step returns that it is the geometric mixture of."""
    values, count = [token.value for token in path] + [0.0], len(path)

    def of_steps(t: int, n: int) -> float:
        return sum(discount**k * rewards[t + k] for k in range(n)) + discount**n * values[t + n]

    found = []
    for t in range(count):
        whole = count - t
        mixed = sum((1 - lam) * lam ** (n - 1) * of_steps(t, n) for n in range(1, whole))
        found.append(mixed + lam ** (whole - 1) * of_steps(t, whole))
    return found, found


def turn_gae(path: Path, rewards: Numbers, *, discount: float, lam: float) -> tuple[Numbers, Numbers]:
    """``gae`` of a path whose tokens are turns, given out to the tokens of each."""
    pairs = list(zip(path, rewards, strict=True))
    turns = [list(group) for _, group in itertools.groupby(pairs, key=lambda pair: pair[0].turn)]
    starts = [turn[0][0] for turn in turns]
    found = gae(starts, [sum(reward for _, reward in turn) for turn in turns], discount=discount, lam=lam)
    return tuple([x for x, turn in zip(column, turns, strict=True) for _ in turn] for column in found)


RECURSIONS = {"gae": gae, "lambda_return": lambda_return, "turn_gae": turn_gae}


def earned(path: Path, outcome: float, notes: list[float] | None) -> Numbers:
    """What each token earns: the note at the last of its node, the outcome at the last of all, less its penalty."""
    rewards = [-token.penalty for token in path]
    for t, token in enumerate(path):
        last = t + 1 == len(path)
        if notes is not None and (last or path[t + 1].node != token.node):
            rewards[t] += notes[token.node]
        if last:
            rewards[t] += outcome
    return rewards


def standardised(rows: dict[int, Numbers]) -> tuple[dict[int, Numbers], bool]:
    """Every number of every row as one of a list that is standardised; whether they differ beyond rounding."""
    flat = [x for row in rows.values() for x in row]
    if len(flat) < 2 or max(flat) - min(flat) < 1e-6:
        return {leaf: [0.0] * len(row) for leaf, row in rows.items()}, False
    mean, deviation = statistics.fmean(flat), statistics.pstdev(flat)
    return {leaf: [(x - mean) / deviation for x in row] for leaf, row in rows.items()}, True


def tokenwise(
    name: str, table: Table, paths: dict[int, Path], *, discount: float, lam: float = 1.0, whiten: bool = True,
    step_reward: bool = False,
) -> tuple[dict[int, Numbers], dict[int, Numbers] | None, set[int]]:  # fmt: skip
    """Advantages and returns of the scored leaves, token by token, and the leaves that carry a signal."""
    notes = table.notes["step_reward"] if step_reward else None
    advantages, returns = {}, {}
    for leaf, outcome in table.totals.items():
        path = paths[leaf]
        if name == "reinforce_plus_plus":
            path = [token._replace(value=0.0) for token in path]
        recursion = RECURSIONS.get(name, gae)
        rewards = earned(path, outcome, notes)
        advantages[leaf], returns[leaf] = recursion(path, rewards, discount=discount, lam=lam)
    varying = True
    if whiten:
        advantages, varying = standardised(advantages)
    if name == "reinforce_plus_plus":
        return advantages, None, set(table.totals) if varying else set()
    return advantages, returns, set(table.totals)


@twin({"discount": 1.0})
def reinforce_plus_plus(table: Table, *, discount: float) -> Answer:
    """Without the tokens: no penalty and no discount, so that a path's tokens agree."""
    paths = {
        leaf: [Token(node, 0, 0.0, 0.0) for node in path for _ in range(table.tokens[node])]
        for leaf, path in table.paths.items()
    }
    advantages, _, varying = tokenwise("reinforce_plus_plus", table, paths, discount=discount)
    found = {}
    for leaf, path in paths.items():
        found |= {(leaf, token.node): x for token, x in zip(path, advantages.get(leaf, []), strict=False)}
    return Answer(found, varying)
