"""A short text that tells one set of parameters from another, computed where the parameters are."""

from __future__ import annotations

import hashlib

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from rlsearch.models.decoder import Params

_BITS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}


def digest(params: Params) -> str:
    """Sixteen hexadecimal digits over the names, shapes, types and bits of all parameters.

    It tells models apart that differ by chance or by training, not those that somebody made to collide. The sums are of
    whole numbers, so that neither device nor order of summation matters.
    """
    total = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        sums = _sums(leaf).tolist()
        total.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype} {sums}\n".encode())
    return total.hexdigest()[:16]


@jax.jit
def _sums(leaf: Array) -> UInt32[Array, "2"]:
    """Two sums, modulo 2**32, of every element's bits mixed with its place."""
    bits = jax.lax.bitcast_convert_type(leaf, _BITS[leaf.dtype.itemsize]).astype(jnp.uint32)
    place = jnp.uint32(0)  # counted without a reshape, which would gather what is sharded
    for axis, size in enumerate(leaf.shape):
        place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, leaf.shape, axis)
    return jnp.stack([_mix(_mix(place ^ jnp.uint32(salt)) ^ bits).sum(dtype=jnp.uint32) for salt in (1, 0x9E3779B9)])


def _mix(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """MurmurHash3's finaliser: a change of one bit of ``x`` changes about half of the result's."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
