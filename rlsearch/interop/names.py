"""One table a family: our parameter, its Hugging Face and GGUF names, and how the array is laid out there."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from rlsearch.models import decoder
from rlsearch.models.decoder import DecoderConfig


class Layout(enum.Enum):
    """How Hugging Face stores an array of ours."""

    SAME = enum.auto()
    FLAT = enum.auto()  # our axes in a row: a bias [heads, width] is [heads * width]
    OUTPUT_FIRST = enum.auto()  # a kernel [input, *outputs] is [outputs, input]
    OUTPUT_FIRST_OF_HEADS = enum.auto()  # a kernel [heads, width, output] is [output, heads * width]

    def theirs(self, array: np.ndarray) -> np.ndarray:
        """Our array of one layer as Hugging Face lays it out; contiguous, since safetensors ignores strides."""
        if self is Layout.FLAT:
            array = array.reshape(-1)
        if self is Layout.OUTPUT_FIRST:
            array = array.reshape(array.shape[0], -1).T
        if self is Layout.OUTPUT_FIRST_OF_HEADS:
            array = array.reshape(-1, array.shape[-1]).T
        return np.ascontiguousarray(array)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Their shape of an array whose shape with us is ``shape``."""
        if self is Layout.FLAT:
            return (int(np.prod(shape)),)
        if self is Layout.OUTPUT_FIRST:
            return (int(np.prod(shape[1:])), shape[0])
        if self is Layout.OUTPUT_FIRST_OF_HEADS:
            return (shape[-1], int(np.prod(shape[:-1])))
        return shape

    def ours(self, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The inverse of :meth:`theirs`, for an array whose shape with us is ``shape``."""
        transposed = self in (Layout.OUTPUT_FIRST, Layout.OUTPUT_FIRST_OF_HEADS)
        return (array.T if transposed else array).reshape(shape)


@dataclass(frozen=True)
class Row:
    """One line of the table; in a name ``{layer}`` and ``{expert}`` are numbers, and axes that the parameter stacks.

    A GGUF name without ``{expert}`` is that of the tensors of all experts, stacked along axis 0.
    """

    path: str
    name: str
    gguf: str
    layout: Layout

    @property
    def stacked(self) -> int:
        """How many leading axes of the parameter are numbers in the name."""
        return ("{layer}" in self.name) + ("{expert}" in self.name)


_SAME, _FLAT, _KERNEL, _HEADS = Layout.SAME, Layout.FLAT, Layout.OUTPUT_FIRST, Layout.OUTPUT_FIRST_OF_HEADS
_HF, _GG = "model.layers.{layer}.", "blk.{layer}."
_EXPERT = _HF + "mlp.experts.{expert}."

_ATTENTION = (
    Row("embed.embedding", "model.embed_tokens.weight", "token_embd.weight", _SAME),
    Row("blocks.attn_norm.scale", _HF + "input_layernorm.weight", _GG + "attn_norm.weight", _SAME),
    Row("blocks.attn.q.kernel", _HF + "self_attn.q_proj.weight", _GG + "attn_q.weight", _KERNEL),
    Row("blocks.attn.k.kernel", _HF + "self_attn.k_proj.weight", _GG + "attn_k.weight", _KERNEL),
    Row("blocks.attn.v.kernel", _HF + "self_attn.v_proj.weight", _GG + "attn_v.weight", _KERNEL),
    Row("blocks.attn.o.kernel", _HF + "self_attn.o_proj.weight", _GG + "attn_output.weight", _HEADS),
    Row("final_norm.scale", "model.norm.weight", "output_norm.weight", _SAME),
)
_BIASES = (
    Row("blocks.attn.q.bias", _HF + "self_attn.q_proj.bias", _GG + "attn_q.bias", _FLAT),
    Row("blocks.attn.k.bias", _HF + "self_attn.k_proj.bias", _GG + "attn_k.bias", _FLAT),
    Row("blocks.attn.v.bias", _HF + "self_attn.v_proj.bias", _GG + "attn_v.bias", _FLAT),
)
_QK_NORMS = (
    Row("blocks.attn.q_norm.scale", _HF + "self_attn.q_norm.weight", _GG + "attn_q_norm.weight", _SAME),
    Row("blocks.attn.k_norm.scale", _HF + "self_attn.k_norm.weight", _GG + "attn_k_norm.weight", _SAME),
)
_MLP = (
    Row("blocks.mlp.gate.kernel", _HF + "mlp.gate_proj.weight", _GG + "ffn_gate.weight", _KERNEL),
    Row("blocks.mlp.up.kernel", _HF + "mlp.up_proj.weight", _GG + "ffn_up.weight", _KERNEL),
    Row("blocks.mlp.down.kernel", _HF + "mlp.down_proj.weight", _GG + "ffn_down.weight", _KERNEL),
)
_MOE = (
    Row("blocks.moe.router.kernel", _HF + "mlp.gate.weight", _GG + "ffn_gate_inp.weight", _KERNEL),
    Row("blocks.moe.gate.kernel", _EXPERT + "gate_proj.weight", _GG + "ffn_gate_exps.weight", _KERNEL),
    Row("blocks.moe.up.kernel", _EXPERT + "up_proj.weight", _GG + "ffn_up_exps.weight", _KERNEL),
    Row("blocks.moe.down.kernel", _EXPERT + "down_proj.weight", _GG + "ffn_down_exps.weight", _KERNEL),
)
_NORM = (Row("blocks.mlp_norm.scale", _HF + "post_attention_layernorm.weight", _GG + "ffn_norm.weight", _SAME),)
_FOUR_NORMS = (
    Row(
        "blocks.attn_post_norm.scale",
        _HF + "post_attention_layernorm.weight", _GG + "post_attention_norm.weight", _SAME,
    ),
    Row("blocks.mlp_norm.scale", _HF + "pre_feedforward_layernorm.weight", _GG + "ffn_norm.weight", _SAME),
    Row("blocks.mlp_post_norm.scale", _HF + "post_feedforward_layernorm.weight", _GG + "post_ffw_norm.weight", _SAME),
)  # fmt: skip
HEAD = Row("head.kernel", "lm_head.weight", "output.weight", _KERNEL)  # absent where the head is tied

TABLES = {
    "llama": (*_ATTENTION, *_NORM, *_MLP),
    "qwen2": (*_ATTENTION, *_BIASES, *_NORM, *_MLP),
    "qwen3": (*_ATTENTION, *_QK_NORMS, *_NORM, *_MLP),
    "qwen3_moe": (*_ATTENTION, *_QK_NORMS, *_NORM, *_MOE),
    "gemma2": (*_ATTENTION, *_FOUR_NORMS, *_MLP),
    "gemma3_text": (*_ATTENTION, *_QK_NORMS, *_FOUR_NORMS, *_MLP),
}

# What a checkpoint of training has beside the policy, and no export: a critic's head.
DROPPED = ("value.kernel", "value.bias")


def rows(cfg: DecoderConfig) -> tuple[Row, ...]:
    """The table of a model."""
    return TABLES[cfg.family] if cfg.tied else (*TABLES[cfg.family], HEAD)


@functools.cache
def shapes(cfg: DecoderConfig) -> dict[str, jax.ShapeDtypeStruct]:
    """Shape and type of every parameter by dotted path, blocks stacked; allocates nothing."""
    return dict(flatten(jax.eval_shape(lambda key: decoder.init(key, cfg), jax.random.key(0))))


def flatten(params: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dicts by dotted path."""
    for key, value in params.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def unflatten(leaves: dict[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`flatten`."""
    nested: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *above, last = path.split(".")
        place = nested
        for key in above:
            place = place.setdefault(key, {})
        place[last] = leaf
    return nested
