"""Compiles the attention kernels for TPUs that are not there: ``python -m tests.models.tpu_kernels v5e:4x4 ...``.

Rows lie over the data axis, heads over the model axis and in one case queries over the sequence axis. Prints a line for
each that compiled: topology, dtype, head width and how many kernels the compiled forward and backward pass holds. Needs
libtpu.
"""

from __future__ import annotations

import os
import sys

# What a TPU machine's metadata would say; without these libtpu asks for it over the network, and waits.
os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "JAX_PLATFORMS": "cpu"}
os.environ |= {"TPU_ACCELERATOR_TYPE": "v5litepod-16", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import NamedSharding

from rlsearch.models import attention, sharding
from rlsearch.models.layout import QUERIES, Layout

TOKENS = 1024
# dtype, head width, query heads a key head, devices that share a row's queries
CASES = (("float32", 64, 7, 1), ("bfloat16", 128, 4, 1), ("float32", 256, 16, 1), ("bfloat16", 128, 4, 2))


def compile_for(topology: str, dtype: str, width: int, groups: int, sequence: int) -> str:
    """The compiled forward and backward pass on every chip of ``topology``, as text."""
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    mesh = sharding.make_mesh(sharding.MeshConfig(-1, 1, sequence, 2), list(devices))

    def loss(q, k, v, end):
        attend = attention.over_forest(end, implementation="pallas", layout=Layout.over(mesh))
        return jnp.square(attend(q, k, v).astype(jnp.float32)).sum()

    def array(heads):
        shape = (mesh.shape["data"], TOKENS, heads, width)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, QUERIES))

    end = jax.ShapeDtypeStruct((mesh.shape["data"], TOKENS), jnp.int32, sharding=NamedSharding(mesh, sharding.ROWS))
    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
    return step.lower(array(2 * groups), array(2), array(2), end).compile().as_text()


def main() -> None:
    for topology in sys.argv[1:]:
        for dtype, width, groups, sequence in CASES:
            kernels = compile_for(topology, dtype, width, groups, sequence).count(
                'custom_call_target="tpu_custom_call"'
            )
            print(topology, dtype, width, kernels, flush=True)


if __name__ == "__main__":
    main()
