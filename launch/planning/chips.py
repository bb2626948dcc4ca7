"""Public figures of TPU generations, per chip (cloud.google.com/tpu/docs, pages "TPU v5e", "TPU v5p", "TPU v6e")."""

from __future__ import annotations

from dataclasses import dataclass

from rlsearch.errors import InputError, nearest


@dataclass(frozen=True)
class Chip:
    """A generation.

    Attributes:
      accelerator: what a machine of it is called when libtpu asks.
      hbm: bytes of memory.
      flops: bfloat16 operations a second at most.
      bandwidth: bytes a second between memory and chip.
      network: bytes a second over all links to other chips of the slice.
    """

    accelerator: str
    hbm: float
    flops: float
    bandwidth: float
    network: float


CHIPS = {
    "v5e": Chip("v5litepod-16", 16 * 2**30, 197e12, 819e9, 200e9),
    "v5p": Chip("v5p-128", 95 * 2**30, 459e12, 2765e9, 600e9),
    "v6e": Chip("v6e-256", 32 * 2**30, 918e12, 1640e9, 448e9),
}


def chip(topology: str) -> Chip:
    """The chip of a topology such as ``v5p:4x4x4``.

    Raises:
      InputError: a topology that is not a known generation, a colon and its sides.
    """
    name, colon, sides = topology.partition(":")
    if name not in CHIPS:
        raise InputError(f"--topology={topology}: generation {name!r} is not known{nearest(name, CHIPS)}")
    if not colon or not all(side.isdigit() and int(side) for side in sides.split("x")):
        raise InputError(f"--topology={topology}: give the sides behind a colon, such as {name}:4x4")
    return CHIPS[name]
