"""Any change of a parameter shows in the digest, and nothing else does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.models.digest import digest


def params(dtype=jnp.float32):
    x = jax.random.normal(jax.random.key(0), (3, 5, 2)).astype(dtype)
    return {"embed": x[0], "blocks": {"kernel": x, "bias": jnp.zeros((7,), dtype)}}


def change(where, value):
    return lambda tree: {**tree, "embed": tree["embed"].at[where].set(value)}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    "changed",
    [
        change((0, 0), 0.0),
        change((4, 1), 3.0),
        lambda tree: {**tree, "embed": tree["embed"][::-1]},
        lambda tree: {**tree, "embed": tree["embed"].T},
        lambda tree: {**tree, "embed": tree["embed"].reshape(2, 5)},
        lambda tree: {"embedding": tree["embed"], "blocks": tree["blocks"]},
        lambda tree: {**tree, "blocks": {**tree["blocks"], "bias": jnp.zeros(8, tree["embed"].dtype)}},
        lambda tree: jax.tree.map(lambda leaf: leaf.astype(jnp.float16), tree),
    ],
)
def test_what_changes_it(dtype, changed):
    assert digest(changed(params(dtype))) != digest(params(dtype))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_every_bit_of_every_element_counts(dtype):
    leaf = np.asarray(params(dtype)["embed"])
    whole = leaf.view({4: np.uint32, 2: np.uint16}[leaf.itemsize])
    seen = {digest({"x": leaf})}
    for place in np.ndindex(leaf.shape):
        for bit in range(8 * leaf.itemsize):
            flipped = whole.copy()
            flipped[place] ^= whole.dtype.type(1 << bit)
            seen.add(digest({"x": flipped.view(leaf.dtype)}))
    assert len(seen) == 1 + leaf.size * 8 * leaf.itemsize


def test_where_it_is_computed_does_not_matter():
    """On the host, on a device, or in parts on several."""
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    halves = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, None, "x"))
    kernel = params()["blocks"]["kernel"]
    assert len({digest({"x": leaf}) for leaf in (kernel, np.asarray(kernel), jax.device_put(kernel, halves))}) == 1
    assert len(digest(params())) == 16


def test_equal_bits_of_another_type_are_other_parameters():
    zeros = [jnp.zeros(3, dtype) for dtype in (jnp.float32, jnp.float16, jnp.bfloat16)]
    assert len({digest({"x": leaf}) for leaf in zeros}) == 3
