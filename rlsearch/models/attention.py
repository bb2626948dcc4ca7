"""Attention over packed forests and over caches: the dense one, and the choice among all.

Axes: B rows, T tokens of a row, H query heads, K key/value heads, G = H / K, D head width, C cache capacity.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int

from rlsearch.errors import InputError, nearest
from rlsearch.models import attention_blocked, attention_pallas
from rlsearch.models.layout import ALONE, KEYS, QUERIES, SEQUENCE, TOKENS, Layout
from rlsearch.models.sharding import ROWS

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


def near(position: Int[Array, "B T"], window: Int[Array, ""] | int) -> Bool[Array, "B T T"]:
    """Whether query token q (axis 1) and key token k (axis 2) are less than ``window`` positions apart.

    A window counts positions, not indices: between a token and its ancestor in a packed row lie other branches.
    """
    return position[:, :, None] - position[:, None, :] < window


def masked_attention(
    q: Float[Array, "B T H D"],
    k: Float[Array, "B K C D"],
    v: Float[Array, "B K C D"],
    mask: Bool[Array, "B T C"],
    *,
    scale: float | None = None,
    cap: float | None = None,
) -> Float[Array, "B T H D"]:
    """Grouped-query attention with an explicit mask; scores and softmax in float32.

    Query head h reads key/value head ``h // G``. Every query must see at least one key. Scores are multiplied by
    ``scale``, 1 / sqrt(D) where None, and with a ``cap`` softly capped before the mask: ``cap * tanh(scores / cap)``.
    """
    rows, tokens, heads, width = q.shape
    groups = heads // k.shape[1]
    q = q.reshape(rows, tokens, k.shape[1], groups, width)
    scale = width**-0.5 if scale is None else scale
    scores = jnp.einsum("btkgd,bkcd->bkgtc", q, k, preferred_element_type=jnp.float32) * scale
    scores = scores if cap is None else cap * jnp.tanh(scores / cap)
    scores = jnp.where(mask[:, None, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    out = jnp.einsum("bkgtc,bkcd->btkgd", weights, v)
    return out.reshape(rows, tokens, heads, width)


class Attend(Protocol):
    """Attention of the queries of packed rows; with a ``window`` to keys less than that many positions back only."""

    def __call__(
        self,
        q: Float[Array, "B T H D"],
        k: Float[Array, "B T K D"],
        v: Float[Array, "B T K D"],
        *,
        window: Int[Array, ""] | None = None,
    ) -> Float[Array, "B T H D"]: ...


def over_forest(
    token_end: Int[Array, "B T"],
    *,
    implementation: str,
    position: Int[Array, "B T"] | None = None,
    scale: float | None = None,
    cap: float | None = None,
    layout: Layout = ALONE,
) -> Attend:
    """``attend(q, k, v)``, in which query q sees key k exactly when ``k <= q < token_end[k]``, as IMPLEMENTATIONS say.

    ``position`` is needed where a window is given; ``scale`` and ``cap`` are as in ``masked_attention``. The blocked
    ones need rows that are a multiple of their module's BLOCK. With a ``layout`` every device computes its own rows and
    heads, and of a row whose tokens lie over several its own queries, for which keys and values are gathered.

    Raises:
      InputError: an unknown implementation; when called, arrays or arguments that it cannot honour.
    """
    if implementation not in IMPLEMENTATIONS:
        raise InputError(f"attention {implementation!r} is unknown{nearest(implementation, IMPLEMENTATIONS)}")
    if implementation == "dense":
        return _dense(visible(token_end), position, layout, scale=scale, cap=cap)
    function = {"blocked": _blocked, "pallas": _pallas}[implementation]

    def attend(q, k, v, *, window=None):
        reach = () if window is None else (position, window)

        def local(q, k, v, token_end, *reach):
            position, window = reach or (None, None)
            limits = {"position": position, "window": window, "scale": scale, "cap": cap}
            return function(q, k, v, token_end, start=layout.first(SEQUENCE, q.shape[1]), **limits)

        ins = (QUERIES, KEYS, KEYS, ROWS, *(ROWS, P())[: len(reach)])
        return layout.local(local, ins=ins, out=QUERIES)(q, k, v, token_end, *reach)

    return attend


def _dense(mask, position, layout: Layout, **limits) -> Attend:
    def local(q, k, v, seen):
        return masked_attention(q, k.swapaxes(1, 2), v.swapaxes(1, 2), seen, **limits)

    def attend(q, k, v, *, window=None):
        seen = mask if window is None else mask & near(position, window)
        return layout.local(local, ins=(QUERIES, KEYS, KEYS, TOKENS), out=QUERIES)(q, k, v, seen)

    return attend


def _blocked(q, k, v, token_end, **limits):
    return attention_blocked.attend(q, k, v, token_end, block=attention_blocked.BLOCK, **limits)


def _pallas(q, k, v, token_end, *, position, **limits):
    return attention_pallas.attend(q, k, v, token_end, block=attention_pallas.BLOCK, interpret=False, **limits)


def check_mesh(implementation: str, mesh: Mesh) -> None:
    """Refuses a mesh that the implementation does not run on, before anything is compiled.

    Raises:
      InputError: the TPU kernel on other devices.
    """
    platform = mesh.devices.flat[0].platform
    if implementation == "pallas" and platform != "tpu":
        raise InputError(
            f"attention 'pallas' on devices of platform {platform!r}: its kernel runs on TPUs; set attention to"
            f" 'blocked' in config.rl and config.warmup"
        )
