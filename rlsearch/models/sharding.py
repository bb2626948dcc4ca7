"""The mesh, and one table from parameter path to specification, every leaf matched exactly once."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rlsearch.errors import InputError

AXES = ("data", "fsdp", "sequence", "model")
ROWS = P(("data", "fsdp"))  # rows of a batch lie over both
FSDP = ("fsdp", "sequence")  # weights are cut over these and gathered layer by layer; tokens of a row lie over sequence

# Decoder parameters. The first axis of a block's leaf is the layer.
TABLE: tuple[tuple[str, P], ...] = (
    (r"embed/embedding", P("model", FSDP)),
    (r"blocks/(attn|mlp)(_post)?_norm/scale", P()),
    (r"blocks/attn/(q|k)_norm/scale", P()),
    (r"blocks/attn/(q|k|v)/kernel", P(None, FSDP, "model", None)),
    (r"blocks/attn/(q|k|v)/bias", P(None, "model", None)),
    (r"blocks/attn/o/kernel", P(None, "model", None, FSDP)),
    (r"blocks/mlp/(gate|up)/kernel", P(None, FSDP, "model")),
    (r"blocks/mlp/down/kernel", P(None, "model", FSDP)),
    (r"blocks/moe/router/kernel", P(None, FSDP, None)),
    (r"blocks/moe/(gate|up)/kernel", P(None, "model", FSDP, None)),  # experts lie over the model axis
    (r"blocks/moe/down/kernel", P(None, "model", None, FSDP)),
    (r"final_norm/scale", P()),
    (r"head/kernel", P(FSDP, "model")),
    (r"value/(kernel|bias)", P()),
    # Adapters: inputs and outputs as those of their matrices, the rank on every device.
    (r"lora/embed/a", P("model", None)),
    (r"lora/embed/b", P(None, FSDP)),
    (r"lora/blocks/attn/(q|k|v)/a", P(None, FSDP, None)),
    (r"lora/blocks/attn/(q|k|v)/b", P(None, None, "model", None)),
    (r"lora/blocks/attn/o/a", P(None, "model", None, None)),
    (r"lora/blocks/attn/o/b", P(None, None, FSDP)),
    (r"lora/blocks/mlp/(gate|up)/a", P(None, FSDP, None)),
    (r"lora/blocks/mlp/(gate|up)/b", P(None, None, "model")),
    (r"lora/blocks/mlp/down/a", P(None, "model", None)),
    (r"lora/blocks/mlp/down/b", P(None, None, FSDP)),
    (r"lora/head/a", P(FSDP, None)),
    (r"lora/head/b", P(None, "model")),
)


@dataclass(frozen=True)
class MeshConfig:
    """Devices along each axis; one of them may be -1, for all that are left."""

    data: int
    fsdp: int
    sequence: int
    model: int


def make_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh with named axes of type Auto over all devices (those given, or every one of every process).

    Raises:
      InputError: the axes do not multiply to the number of devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    sizes = [config.data, config.fsdp, config.sequence, config.model]
    known = int(np.prod([size for size in sizes if size != -1]))
    if sizes.count(-1) == 1 and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if -1 in sizes or int(np.prod(sizes)) != len(devices):
        raise InputError(
            f"config.mesh: data={config.data}, fsdp={config.fsdp}, sequence={config.sequence}, model={config.model}"
            f" does not divide {len(devices)} devices; make the product equal, with at most one -1"
        )
    return Mesh(np.asarray(devices).reshape(sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def shard(tree: Any, mesh: Mesh, table: Sequence[tuple[str, P]] = TABLE) -> Any:
    """The NamedSharding of every leaf of ``tree`` (arrays or shapes), by the path of its keys.

    Leaves of optimizer states have the parameter's path as the end of their own; scalars are replicated.

    Raises:
      InputError: a path is matched by no row or by more than one, or an axis does not divide its dimension.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: NamedSharding(mesh, _spec(path, leaf, mesh, table)), tree
    )


def replicated(mesh: Mesh) -> NamedSharding:
    """The same value on every device."""
    return NamedSharding(mesh, P())


def _spec(path, leaf, mesh: Mesh, table) -> P:
    if not leaf.shape:
        return P()
    name = "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)
    found = [spec for pattern, spec in table if re.search(rf"(^|/){pattern}$", name)]
    if len(found) != 1:
        raise InputError(f"sharding table: parameter {name} is matched by {len(found)} rows, must be exactly one")
    for axis, size in zip(found[0], leaf.shape, strict=False):
        axes = (axis,) if isinstance(axis, str) else axis or ()
        if size % math.prod(mesh.shape[one] for one in axes):
            over = " x ".join(f"{one}={mesh.shape[one]}" for one in axes)
            raise InputError(f"parameter {name} of shape {leaf.shape}: {size} does not divide over {over}")
    return found[0]


def to_global(tree: Any, mesh: Mesh) -> Any:
    """Blocks of rows [M, R, ...] from this process's share of every block, R laid over the data axes."""
    place = NamedSharding(mesh, P(None, *ROWS))
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(place, leaf), tree)


def to_local(tree: Any, mesh: Mesh) -> Any:
    """The whole of every array on this process's first device, for sampling; gathers what is sharded."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), jax.device_put(tree, replicated(mesh)))


def of_cache(n_kv_heads: int, mesh: Mesh, *, slots: Sequence[int]) -> NamedSharding:
    """How a cache (slot, head, position, width) lies over a mesh: slots over data, fsdp and sequence, heads over model.

    Raises:
      InputError: slots or heads that do not divide over their axes, or calls that use a part of the slots.
    """
    over = ("data", "fsdp", "sequence")
    shares = math.prod(mesh.shape[axis] for axis in over)
    if len(slots) > 1 or slots[-1] % shares or n_kv_heads % mesh.shape["model"]:
        raise InputError(
            f"config.sampling.slots {tuple(slots)} over the sampler's mesh: a cache laid over {shares} devices of"
            f" the axes data, fsdp and sequence needs one size that divides over them, and {n_kv_heads} key/value heads"
            f" must divide over the {mesh.shape['model']} of model"
        )
    return NamedSharding(mesh, P(over, "model"))
