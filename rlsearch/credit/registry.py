"""The estimators by name, what each reads, and how a config chooses one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.config import Call
from rlsearch.credit.algebra import Advantages
from rlsearch.errors import InputError


@dataclass(frozen=True)
class Estimator:
    """An estimator: a function of ``Episodes`` and its own options.

    Attributes:
      function: ``(episodes, *, options) -> Advantages``.
      family: where ``python -m rlsearch.methods`` lists it.
      notes: columns of ``Nodes.notes`` that it reads.
      outcome: whether equal rewards in a question make every advantage in it zero, so that the question need not be
        computed where equal groups are dropped.
      critic: whether it reads the values of a critic.
      optional: columns that it reads only where its option of the same name is True.
    """

    function: Callable[..., Advantages]
    family: str
    notes: tuple[str, ...]
    outcome: bool
    critic: bool
    optional: tuple[str, ...]


ESTIMATORS: dict[str, Estimator] = {}


def estimator(
    family: str, *, notes: Iterable[str] = (), outcome: bool = False, critic: bool = False,
    optional: Iterable[str] = (),
) -> Callable[[Callable[..., Advantages]], Callable[..., Advantages]]:  # fmt: skip
    """Registers a function as an estimator under its own name; the attributes are those of ``Estimator``."""

    def register(function: Callable[..., Advantages]) -> Callable[..., Advantages]:
        if function.__name__ in ESTIMATORS:
            raise ValueError(f"estimator {function.__name__!r} is registered twice")
        ESTIMATORS[function.__name__] = Estimator(function, family, tuple(notes), outcome, critic, tuple(optional))
        return function

    return register


@dataclass(frozen=True)
class CreditConfig:
    """Which estimator, and what happens to groups without a signal."""

    estimator: Call
    drop_equal: bool  # leave episodes without a signal out of every denominator, and do not compute equal groups

    @property
    def chosen(self) -> Estimator:
        """The registered estimator."""
        return ESTIMATORS[self.estimator.name]

    @property
    def notes(self) -> tuple[str, ...]:
        """Columns that the estimator reads with these options."""
        return (*self.chosen.notes, *(name for name in self.chosen.optional if self.estimator[name]))

    @property
    def drops_questions(self) -> bool:
        """Whether questions of equal rewards need not be computed."""
        return self.drop_equal and self.chosen.outcome


def read(section: ConfigDict, where: str = "config.credit") -> CreditConfig:
    """Reads ``{"estimator": name, "drop_equal": ..., **options of the estimator}``.

    Raises:
      InputError: no such estimator, or keys that are not its options.
    """
    if "drop_equal" not in section or not isinstance(section.drop_equal, bool):
        raise InputError(f"{where}: needs drop_equal, True or False: whether groups without a signal are left out")
    rest = ConfigDict({key: section[key] for key in section if key != "drop_equal"})
    functions = {name: entry.function for name, entry in ESTIMATORS.items()}
    return CreditConfig(configs.read_call(rest, functions, where, key="estimator"), section.drop_equal)


def check_notes(config: CreditConfig, provided: Iterable[str]) -> None:
    """Checks that every column that the estimator reads is written by something.

    Raises:
      InputError: names the columns that nothing writes.
    """
    missing = [name for name in config.notes if name not in set(provided)]
    if missing:
        raise InputError(
            f"config.credit.estimator {config.estimator.name!r} reads the notes {', '.join(missing)}, which nothing"
            f" writes; add (column, writer) pairs to config.notes (there: {', '.join(sorted(provided)) or 'none'})"
        )
