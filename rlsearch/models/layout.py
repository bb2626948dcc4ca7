"""Where the activations of packed rows lie on a mesh.

Rows lie over the axes data and fsdp, the tokens of a row over sequence, heads and experts over model. Axes: B rows, T
tokens of a row, S targets of a row, Q devices along sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int

from rlsearch.models.sharding import ROWS

SEQUENCE, MODEL = "sequence", "model"
TOKENS = P(*ROWS, SEQUENCE)  # of [B, T, ...]
QUERIES = P(*ROWS, SEQUENCE, MODEL)  # of [B, T, heads, ...]
KEYS = P(*ROWS, None, MODEL)  # of [B, T, heads, ...], where every device of the axis has the tokens of all


@dataclass(frozen=True)
class Layout:
    """A mesh, or None for one device, on which nothing is laid out."""

    mesh: Mesh | None

    @classmethod
    def over(cls, mesh: Mesh | None) -> Layout:
        """That over a mesh; one of a single device needs none."""
        return ALONE if mesh is None or mesh.size == 1 else cls(mesh)

    def tokens(self, x: Array) -> Array:
        """Lays [B, T, ...] out, its tokens over the sequence axis."""
        return self._lay(x, TOKENS)

    def rows(self, x: Array) -> Array:
        """Lays [B, ...] out, its rows whole."""
        return self._lay(x, ROWS)

    def shares(self, x: Array) -> Array:
        """[B, S, ...] as [B, Q, S / Q, ...], each part of a row on a device of its own; as it is where Q is 1."""
        parts = self._size(SEQUENCE)
        return x if parts == 1 else self._lay(x.reshape(x.shape[0], parts, -1, *x.shape[2:]), TOKENS)

    def joined(self, x: Array) -> Array:
        """Undoes ``shares``."""
        return x if self._size(SEQUENCE) == 1 else self._lay(x.reshape(x.shape[0], -1, *x.shape[3:]), ROWS)

    def local(self, function: Callable, *, ins: Sequence[P], out: P) -> Callable:
        """``function`` of the parts that a device holds, which it may not ask others for unless by name."""
        if self.mesh is None:
            return function
        return jax.shard_map(function, mesh=self.mesh, in_specs=tuple(ins), out_specs=out, check_vma=False)

    def first(self, axis: str, size: int) -> Int[Array, ""] | None:
        """Inside ``local``: where this device's ``size`` entries along an axis begin; None where it has all."""
        return None if self._size(axis) == 1 else jax.lax.axis_index(axis) * size

    def total(self, x: Array, axis: str) -> Array:
        """Inside ``local``: the sum over the devices of an axis."""
        return x if self._size(axis) == 1 else jax.lax.psum(x, axis)

    def _size(self, axis: str) -> int:
        return 1 if self.mesh is None else self.mesh.shape[axis]

    def _lay(self, x: Array, spec: P) -> Array:
        return x if self.mesh is None else jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))


ALONE = Layout(None)
