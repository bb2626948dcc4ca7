"""A reward model: the decoder's trunk under the critic's head, read once, at the last token of a sequence.

Axes: B rows, T tokens, S sequences of a row, E model width.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlsearch.models import decoder, value
from rlsearch.models.decoder import DecoderConfig, Params


def score(
    params: Params,
    cfg: DecoderConfig,
    *,
    token_id: Int[Array, "B T"],
    position: Int[Array, "B T"],
    token_end: Int[Array, "B T"],
    last: Int[Array, "B S"],
    remat: str | bool,
    attention: str,
) -> Float[Array, "B S"]:
    """Scores of sequences in packed rows, in float32.

    Args:
      params: a trunk and its head, as ``value.from_policy`` or ``interop.load.import_reward_model`` gives them.
      cfg: the trunk's architecture.
      token_id, position, token_end: as ``decoder.apply`` takes them; what sequences share may stand once.
      last: index in its row of every sequence's last token; padding may have any.
      remat, attention: likewise.
    """
    hidden = decoder.apply(
        params, cfg, token_id=token_id, position=position, token_end=token_end, remat=remat, attention=attention
    )
    return value.head(params, jnp.take_along_axis(hidden, last[:, :, None], axis=1))
