"""From sections to dataclasses: every key accounted for, and errors that say where and what."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.errors import InputError, nearest


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float


@dataclasses.dataclass(frozen=True)
class Outer:
    steps: int
    name: str | None
    sizes: tuple
    flag: bool
    inner: Inner
    maybe: Inner | None
    anything: Any


GOOD = {
    "steps": 3, "name": None, "sizes": [1, [2, 3]], "flag": True, "inner": {"rate": 1}, "maybe": None, "anything": "x",
}  # fmt: skip


def read(**changes):
    return configs.read(ConfigDict(GOOD | changes), Outer, "config.outer")


def test_a_section_becomes_its_dataclass():
    assert read() == Outer(3, None, (1, (2, 3)), True, Inner(1.0), None, "x")
    assert isinstance(read().inner.rate, float)
    assert read(name="a", maybe={"rate": 2.5}).maybe == Inner(2.5)
    assert hash(read(anything=1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stepz": 1}, "config.outer.stepz: unknown key; did you mean 'steps'?"),
        ({"zzz": 1}, "config.outer.zzz: unknown key; known: anything, flag, inner"),
        ({"inner": {"rat": 1}}, "config.outer.inner.rat: unknown key; did you mean 'rate'?"),
        ({"inner": {}}, "config.outer.inner: missing rate; Inner needs every one of: rate"),
        ({"steps": 1.5}, "config.outer.steps: 1.5 is float, needs int"),
        ({"steps": True}, "config.outer.steps: True is bool, needs int"),
        ({"flag": 1}, "config.outer.flag: 1 is int, needs bool"),
        ({"name": 3}, "config.outer.name: 3 is int, needs str"),
        ({"steps": None}, "config.outer.steps: None is NoneType, needs int"),
        ({"inner": 3}, "config.outer.inner: 3 is int, needs Inner"),
        ({"sizes": 3}, "config.outer.sizes: 3 is int, needs tuple"),
    ],
)
def test_what_does_not_fit_is_named(changes, said):
    with pytest.raises(InputError) as caught:
        read(**changes)
    assert said in str(caught.value)


@pytest.mark.parametrize("missing", sorted(GOOD))
def test_every_key_is_needed(missing):
    """There are no defaults."""
    section = ConfigDict({key: value for key, value in GOOD.items() if key != missing})
    with pytest.raises(InputError, match=rf"config\.outer: missing {missing}; Outer needs every one of: steps, name"):
        configs.read(section, Outer, "config.outer")


@pytest.mark.parametrize("value", [None, 3, "text"])
def test_a_value_where_a_section_belongs(value):
    with pytest.raises(InputError, match=r"config\.outer: .* is no section"):
        configs.read(value, Outer, "config.outer")
    with pytest.raises(InputError, match=r"config\.outer: .* is no section"):
        configs.read_kind(value, {"inner": Inner}, "config.outer")


def test_the_kind_chooses():
    kinds = {"inner": Inner, "outer": Outer}
    assert configs.read_kind(ConfigDict({"kind": "inner", "rate": 2}), kinds, "config.x") == Inner(2.0)
    with pytest.raises(InputError, match=r"config\.x\.kind: 'iner' is unknown; did you mean 'inner'\?"):
        configs.read_kind(ConfigDict({"kind": "iner", "rate": 2}), kinds, "config.x")
    with pytest.raises(InputError, match=r"config\.x: missing 'kind'; one of: inner, outer"):
        configs.read_kind(ConfigDict({"rate": 2}), kinds, "config.x")
    with pytest.raises(InputError, match=r"config\.x\.rte: unknown key; did you mean 'rate'"):
        configs.read_kind(ConfigDict({"kind": "inner", "rte": 2}), kinds, "config.x")


def test_nearest_names_one_or_all():
    assert nearest("sede", ["seed", "steps"]) == "; did you mean 'seed'?"
    assert nearest("qqq", ["b", "a"]) == "; known: a, b"
