"""From an ``ml_collections`` section to a frozen dataclass, with every key accounted for.

Defaults live in ``configs/`` and nowhere else: the dataclasses that rooms declare have none, so a section must name
every field and may name no other.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ml_collections import ConfigDict

from rlsearch.errors import InputError, nearest

T = TypeVar("T")


def read(section: ConfigDict, cls: type[T], where: str) -> T:
    """Reads ``section`` as ``cls``.

    Args:
      section: keys and values; lists become tuples, nested sections become nested dataclasses.
      cls: a dataclass whose fields name exactly the keys of ``section``.
      where: the section's path from the root of the config, for messages, such as ``config.loss``.

    Raises:
      InputError: a key is unknown (the nearest known one is named), missing, or of the wrong type.
    """
    _check_section(section, where)
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    for key in section:
        if key not in names:
            raise InputError(f"{where}.{key}: unknown key{nearest(key, names)}")
    missing = [name for name in names if name not in section]
    if missing:
        raise InputError(
            f"{where}: missing {', '.join(missing)}; {cls.__name__} needs every one of: {', '.join(names)}"
        )
    return cls(**{name: _value(section[name], hints[name], f"{where}.{name}") for name in names})


def _value(value: Any, hint: Any, where: str) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    kinds = [option for option in options if option is not type(None)]
    if dataclasses.is_dataclass(kinds[0]) and isinstance(value, ConfigDict):
        return read(value, kinds[0], where)
    if isinstance(value, list | tuple):
        value = _tuples(value)
    allowed = tuple(typing.get_origin(kind) or kind for kind in kinds)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    wrong_bool = isinstance(value, bool) and bool not in allowed
    if Any not in allowed and (wrong_bool or not isinstance(value, allowed)):
        wanted = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise InputError(f"{where}: {value!r} is {type(value).__name__}, needs {wanted}")
    return value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _check_section(section: Any, where: str) -> None:
    if not isinstance(section, ConfigDict):
        raise InputError(f"{where}: {section!r} is no section; it needs keys and values of its own")


def read_kind(section: ConfigDict, kinds: dict[str, type], where: str) -> Any:
    """Reads a section whose ``kind`` says which of ``kinds`` it is; the other keys are that dataclass's fields.

    Raises:
      InputError: no ``kind``, an unknown one, or keys that do not fit it.
    """
    _check_section(section, where)
    if "kind" not in section:
        raise InputError(f"{where}: missing 'kind'; one of: {', '.join(sorted(kinds))}")
    if section.kind not in kinds:
        raise InputError(f"{where}.kind: {section.kind!r} is unknown{nearest(str(section.kind), kinds)}")
    rest = ConfigDict({key: section[key] for key in section if key != "kind"})
    return read(rest, kinds[section.kind], where)


def differing(one: Any, other: Any, where: str = "") -> list[str]:
    """The dotted keys, below ``where``, of the values in which two configs that were read from JSON differ."""
    return sorted({key for key, _ in _leaves(one, where) ^ _leaves(other, where)})


def _leaves(value: Any, where: str) -> set[tuple[str, str]]:
    if isinstance(value, dict) and value:
        return {leaf for key in value for leaf in _leaves(value[key], f"{where}.{key}" if where else key)}
    return {(where, json.dumps(value))}


@dataclasses.dataclass(frozen=True)
class Call:
    """A function that a config names, with the keyword arguments that the config gives it. Hashable, for ``jit``."""

    name: str
    function: Callable
    options: tuple[tuple[str, Any], ...]

    def __call__(self, *args: Any) -> Any:
        return self.function(*args, **dict(self.options))

    def __getitem__(self, option: str) -> Any:
        """The value of an option."""
        return dict(self.options)[option]


def read_call(section: ConfigDict, functions: Mapping[str, Callable], where: str, *, key: str = "kind") -> Call:
    """Reads a section whose ``key`` names one of ``functions``; the other keys are its keyword-only arguments.

    Raises:
      InputError: no such function, or keys that are not exactly its keyword-only arguments.
    """
    _check_section(section, where)
    if key not in section:
        raise InputError(f"{where}: missing {key}; one of: {', '.join(sorted(functions))}")
    name = section[key]
    if name not in functions:
        raise InputError(f"{where}.{key} {name!r}: unknown{nearest(str(name), functions)}")
    function = functions[name]
    hints = typing.get_type_hints(function)
    options = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for given in section:
        if given != key and given not in options:
            raise InputError(f"{where}.{given}: {name} takes no such key{nearest(given, options)}")
    if missing := [option for option in options if option not in section]:
        raise InputError(f"{where}: {name} misses {', '.join(missing)}; it needs: {', '.join(options)}")
    values = tuple((option, _value(section[option], hints[option], f"{where}.{option}")) for option in options)
    return Call(name, function, values)
