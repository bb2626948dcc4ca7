"""Operations of a traced program: every matrix product, times how often the loops around it turn.

Products of experts count the rows that there are, each with the matrix of its own expert. A kernel counts as often as
its grid has steps, and reads and writes its operands and results once.

XLA's own cost analysis counts the body of a loop once; here loops are multiplied out. A loop whose number of turns is
not in the program (it depends on data) turns as often as the caller says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True)
class Work:
    """Floating-point operations of all products (two for each multiply-add), and the bytes that they read and write."""

    flops: float
    bytes: float

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Work:
        return Work(self.flops * times, self.bytes * times)


NOTHING = Work(0.0, 0.0)


def count(function: Callable, *args: Any, turns: float) -> Work:
    """Work of ``function(*args)`` on all chips together; arguments may be shapes. Nothing is computed.

    Args:
      function: what to trace.
      *args: its arguments.
      turns: of a loop whose number of turns the program does not hold.
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*args).jaxpr, turns)


def _of_jaxpr(jaxpr, turns: float) -> Work:
    total = NOTHING
    for equation in jaxpr.eqns:
        total = total + _of_equation(equation, turns)
    return total


def _of_equation(equation, turns: float) -> Work:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        return _of_dot(equation)
    if name == "scan":
        return _of_jaxpr(params["jaxpr"].jaxpr, turns) * params["length"]
    if name == "while":
        return _of_jaxpr(params["body_jaxpr"].jaxpr, turns) * turns
    if name == "cond":
        branches = [_of_jaxpr(branch.jaxpr, turns) for branch in params["branches"]]
        return max(branches, key=lambda work: work.flops)
    if name == "shard_map":
        return _of_jaxpr(params["jaxpr"], turns) * params["mesh"].size
    if name == "ragged_dot_general":
        return _of_ragged_dot(equation)
    if name == "pallas_call":
        inside = _of_jaxpr(params["jaxpr"], turns).flops * np.prod(params["grid_mapping"].grid, dtype=float)
        return Work(inside, _bytes((*equation.invars, *equation.outvars)))
    total = NOTHING
    for value in params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            if hasattr(inner, "jaxpr"):
                inner = inner.jaxpr
            if hasattr(inner, "eqns"):
                total = total + _of_jaxpr(inner, turns)
    return total


def _of_dot(equation) -> Work:
    (contract, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval
    (result,) = (variable.aval for variable in equation.outvars)
    inner = np.prod([left.shape[axis] for axis in contract], dtype=float)
    size = _bytes((*equation.invars, *equation.outvars))
    return Work(2.0 * inner * np.prod(result.shape, dtype=float), size)


def _of_ragged_dot(equation) -> Work:
    """Rows of the left side are cut into groups; each meets one matrix, or where rows are summed, adds to one."""
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (contract, _), _ = numbers.dot_dimension_numbers
    left, result = equation.invars[0].aval, equation.outvars[0].aval
    inner = np.prod([left.shape[axis] for axis in contract], dtype=float)
    groups = 1 if numbers.rhs_group_dimensions else result.shape[0]  # the result has an axis of groups
    work = 2.0 * inner * np.prod(result.shape, dtype=float) / groups
    return Work(work, _bytes((*equation.invars, *equation.outvars)))


def _bytes(variables) -> float:
    return sum(np.prod(v.aval.shape, dtype=float) * v.aval.dtype.itemsize for v in variables)
