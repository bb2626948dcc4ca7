"""Terms beside the clipped objective: regularisers, the critic's loss, and objectives of another form.

Each is a function of the targets and the batch, with its own options, that gives a scalar to be minimised, weights
included. ``TERMS[name].whole`` says that it needs the targets of the whole batch at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Array, Float


@dataclass(frozen=True)
class Term:
    """A term of the loss.

    Attributes:
      function: ``(targets, batch, *, options) -> scalar``.
      whole: it reads more than each target by itself.
      reference: it reads the reference policy's log-probabilities.
      critic: it reads a critic's values.
    """

    function: Callable[..., Float[Array, ""]]
    whole: bool
    reference: bool
    critic: bool


TERMS: dict[str, Term] = {}


def term(*, whole: bool = False, reference: bool = False, critic: bool = False) -> Callable:
    """Registers a function as a term under its own name; the attributes are those of ``Term``."""

    def register(function: Callable) -> Callable:
        TERMS[function.__name__] = Term(function, whole, reference, critic)
        return function

    return register
