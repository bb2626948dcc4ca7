"""Operations of a traced program: every matrix product, times how often the loops around it turn.

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
    left, right = (variable.aval for variable in equation.invars)
    (result,) = (variable.aval for variable in equation.outvars)
    inner = np.prod([left.shape[axis] for axis in contract], dtype=float)
    size = sum(np.prod(aval.shape, dtype=float) * aval.dtype.itemsize for aval in (left, right, result))
    return Work(2.0 * inner * np.prod(result.shape, dtype=float), size)
