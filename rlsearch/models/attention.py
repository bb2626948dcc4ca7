"""Attention over packed forests and over caches.

Axes: B rows, T tokens of a row, H query heads, K key/value heads, G = H / K, D head width, C cache capacity.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


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
