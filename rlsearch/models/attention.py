"""Attention over packed forests and over caches: the dense one, and the choice among all.

Axes: B rows, T tokens of a row, H query heads, K key/value heads, G = H / K, D head width, C cache capacity.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from rlsearch.errors import InputError, nearest
from rlsearch.models import attention_blocked, attention_pallas

# How rows of a forest attend: with the whole mask in memory (best for short rows), block by block in XLA, or block by
# block in a TPU kernel.
IMPLEMENTATIONS = ("dense", "blocked", "pallas")


def visible(token_end: Int[Array, "B T"]) -> Bool[Array, "B T T"]:
    """Whether query token q (axis 1) may attend to key token k (axis 2): ``k <= q < token_end[k]``.

    That is the causal mask, the packed-row mask and the prefix-tree mask at once: k's subtree is ``[k, token_end[k])``
    in depth-first order, so q lies below k exactly when it lies inside. A padding token ends at its own index + 1 and
    sees only itself.
    """
    index = jnp.arange(token_end.shape[1])
    query, key = index[None, :, None], index[None, None, :]
    return (key <= query) & (query < token_end[:, None, :])


def masked_attention(
    q: Float[Array, "B T H D"], k: Float[Array, "B K C D"], v: Float[Array, "B K C D"], mask: Bool[Array, "B T C"]
) -> Float[Array, "B T H D"]:
    """Grouped-query attention with an explicit mask; scores and softmax in float32.

    Query head h reads key/value head ``h // G``. Every query must see at least one key.
    """
    rows, tokens, heads, width = q.shape
    groups = heads // k.shape[1]
    q = q.reshape(rows, tokens, k.shape[1], groups, width)
    scores = jnp.einsum("btkgd,bkcd->bkgtc", q, k, preferred_element_type=jnp.float32) * width**-0.5
    scores = jnp.where(mask[:, None, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    out = jnp.einsum("bkgtc,bkcd->btkgd", weights, v)
    return out.reshape(rows, tokens, heads, width)


def over_forest(
    token_end: Int[Array, "B T"], *, implementation: str
) -> Callable[[Float[Array, "B T H D"], Float[Array, "B T K D"], Float[Array, "B T K D"]], Float[Array, "B T H D"]]:
    """``attend(q, k, v)``, in which query q sees key k exactly when ``k <= q < token_end[k]``, as IMPLEMENTATIONS say.

    The blocked ones need rows that are a multiple of their module's BLOCK.

    Raises:
      InputError: an unknown implementation; when called, arrays that it cannot honour.
    """
    if implementation == "dense":
        mask = visible(token_end)
        return lambda q, k, v: masked_attention(q, k.swapaxes(1, 2), v.swapaxes(1, 2), mask)
    if implementation == "blocked":
        return lambda q, k, v: attention_blocked.attend(q, k, v, token_end, block=attention_blocked.BLOCK)
    if implementation == "pallas":
        block = attention_pallas.BLOCK
        return lambda q, k, v: attention_pallas.attend(q, k, v, token_end, block=block, interpret=False)
    raise InputError(f"attention {implementation!r} is unknown{nearest(implementation, IMPLEMENTATIONS)}")


def check_mesh(implementation: str, mesh: Mesh) -> None:
    """Refuses a mesh that the implementation does not run on, before anything is compiled.

    Raises:
      InputError: the TPU kernel on other devices, or on more than one, over which ``jit`` cannot partition it.
    """
    platform = mesh.devices.flat[0].platform
    if implementation == "pallas" and (platform != "tpu" or mesh.size > 1):
        raise InputError(
            f"attention 'pallas' on {mesh.size} devices of platform {platform!r}: its kernel runs on one TPU device;"
            f" set attention to 'blocked' in config.rl and config.warmup"
        )
