"""Compiles the attention kernels for TPUs that are not there: ``python -m tests.models.tpu_kernels v5e:4x4 ...``.

Rows lie over the data axis and heads over the model axis of the whole topology. Prints a line for each that compiled:
topology, dtype, head width and how many kernels the compiled forward and backward pass holds. Needs libtpu.
"""

from __future__ import annotations

import os
import sys

# What a TPU machine's metadata would say; without these libtpu asks for it over the network, and waits.
os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "JAX_PLATFORMS": "cpu"}
os.environ["TPU_ACCELERATOR_TYPE"] = "v5litepod-16"

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rlsearch.models import attention_pallas

TOKENS = 1024
CASES = (("float32", 64, 7), ("bfloat16", 128, 4), ("float32", 256, 16))  # dtype, head width, query heads a key head


def compile_for(topology: str, dtype: str, width: int, groups: int) -> str:
    """The compiled forward and backward pass on every chip of ``topology``, as text."""
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    mesh = Mesh(np.array(devices).reshape(-1, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    split, rows = P("data", None, "model", None), P("data", None)
    kernel = functools.partial(attention_pallas.attend, block=attention_pallas.BLOCK, interpret=False)
    attend = jax.shard_map(kernel, mesh=mesh, in_specs=(split, split, split, rows), out_specs=split, check_vma=False)

    def loss(q, k, v, end):
        return jnp.square(attend(q, k, v, end).astype(jnp.float32)).sum()

    def array(heads):
        shape = (mesh.shape["data"], TOKENS, heads, width)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, split))

    end = jax.ShapeDtypeStruct((mesh.shape["data"], TOKENS), jnp.int32, sharding=NamedSharding(mesh, rows))
    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
    return step.lower(array(2 * groups), array(2), array(2), end).compile().as_text()


def main() -> None:
    for topology in sys.argv[1:]:
        for dtype, width, groups in CASES:
            kernels = compile_for(topology, dtype, width, groups).count('custom_call_target="tpu_custom_call"')
            print(topology, dtype, width, kernels, flush=True)


if __name__ == "__main__":
    main()
