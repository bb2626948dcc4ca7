"""The architecture of a decoder as data, and what each family of released models fixes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlsearch.errors import InputError, nearest

ACTIVATIONS = ("silu", "gelu_tanh")
SCALINGS = ("llama3", "linear", "yarn")

_PLAIN = {
    "activation": "silu", "unit_offset": False, "post_norms": False, "scale_embedding": False, "query_scalar": None,
    "attention_cap": None, "logit_cap": None, "sliding": None, "experts": None, "qkv_bias": False, "qk_norm": False,
}  # fmt: skip
_GEMMA = {
    "activation": "gelu_tanh", "unit_offset": True, "post_norms": True, "scale_embedding": True, "qkv_bias": False,
    "experts": None,
}  # fmt: skip

# By the ``model_type`` of transformers: the options that its code for the family has no choice in.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _PLAIN,
    "qwen2": {**_PLAIN, "qkv_bias": True},
    "qwen3": {**_PLAIN, "qk_norm": True},
    "qwen3_moe": {key: value for key, value in {**_PLAIN, "qk_norm": True}.items() if key != "experts"},
    "gemma2": {**_GEMMA, "qk_norm": False},
    "gemma3_text": {**_GEMMA, "qk_norm": True, "attention_cap": None},
}
_NEEDED = {"qwen3_moe": ("experts",), "gemma2": ("sliding", "query_scalar"), "gemma3_text": ("sliding", "query_scalar")}


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies were changed for longer contexts; see ``rope.frequencies``."""

    kind: str  # one of SCALINGS
    factor: float
    low: float | None  # llama3, yarn: wavelengths above original_positions / low are stretched by the factor
    high: float | None  # llama3, yarn: those below original_positions / high are kept
    original_positions: int | None  # llama3, yarn


@dataclass(frozen=True)
class Sliding:
    """Layers that see a window of positions only: all but every ``full_every``-th one."""

    window: int  # positions that a token sees, its own included
    full_every: int  # layer i, from 0, sees everything where i + 1 is a multiple
    rope_theta: float  # of the layers with a window, whose frequencies are not scaled


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of every feed-forward layer."""

    count: int
    per_token: int  # experts that a token goes to
    d_ff: int  # width of one expert
    normalise: bool  # whether the weights of the experts of a token add up to one


@dataclass(frozen=True)
class DecoderConfig:
    """The architecture of a policy, as ``configs/models/`` states it."""

    family: str  # which Hugging Face architecture it is exported as: one of FAMILIES
    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    experts: Experts | None
    activation: str  # of the feed-forward gate, one of ACTIVATIONS
    rope_theta: float
    rope_scaling: RopeScaling | None
    sliding: Sliding | None
    norm_eps: float
    unit_offset: bool  # norms multiply by one plus their scale
    post_norms: bool  # what attention and feed-forward return is normed too
    qkv_bias: bool
    qk_norm: bool  # queries and keys are normed over a head's width
    scale_embedding: bool  # by the root of d_model
    query_scalar: float | None  # scores are divided by its root; None is head_dim
    attention_cap: float | None  # scores x become cap * tanh(x / cap)
    logit_cap: float | None  # and so do logits
    tied: bool  # the head is the transposed embedding
    max_positions: int
    dtype: str  # of activations
    param_dtype: str

    def __post_init__(self):
        if self.family not in FAMILIES:
            raise InputError(f"model family {self.family!r}: unknown{nearest(self.family, FAMILIES)}")
        if self.n_heads % self.n_kv_heads:
            raise InputError(f"model: {self.n_heads} query heads cannot share {self.n_kv_heads} key/value heads evenly")
        if self.head_dim % 2:
            raise InputError(f"model: rotary positions need an even head_dim, got {self.head_dim}")
        for option, value in FAMILIES[self.family].items():
            if getattr(self, option) != value:
                raise InputError(
                    f"model: family {self.family!r} needs {option}={value!r}, got {getattr(self, option)!r}; the"
                    f" code of transformers for this family can do nothing else"
                )
        for option in _NEEDED.get(self.family, ()):
            if getattr(self, option) is None:
                raise InputError(f"model: family {self.family!r} needs {option}, got None")
        self._check_parts()

    def _check_parts(self) -> None:
        scaling, experts, sliding = self.rope_scaling, self.experts, self.sliding
        if scaling and scaling.kind not in SCALINGS:
            raise InputError(f"model: rope_scaling of kind {scaling.kind!r}: unknown{nearest(scaling.kind, SCALINGS)}")
        if scaling:
            given = [value is not None for value in (scaling.low, scaling.high, scaling.original_positions)]
            if given != [scaling.kind != "linear"] * 3:
                raise InputError(
                    f"model: rope_scaling {scaling}: low, high and original_positions belong to kinds 'llama3' and"
                    f" 'yarn', all three, and not to 'linear'"
                )
        if scaling and scaling.kind != "linear" and not scaling.low < scaling.high:
            raise InputError(f"model: rope_scaling needs low < high, got {scaling.low} and {scaling.high}")
        if experts and not 0 < experts.per_token <= experts.count:
            raise InputError(f"model: a token cannot go to {experts.per_token} of {experts.count} experts")
        if sliding and (sliding.window < 1 or sliding.full_every < 2):
            raise InputError(f"model: {sliding} needs a window of 1 or more and full_every of 2 or more")
        if self.family == "gemma2" and (sliding.rope_theta != self.rope_theta or scaling):
            raise InputError("model: family 'gemma2' needs one rope_theta for all layers, and no rope_scaling")

    @property
    def score_scale(self) -> float:
        """What products of queries and keys are multiplied by."""
        return (self.head_dim if self.query_scalar is None else self.query_scalar) ** -0.5

    def slides(self, layer: int) -> bool:
        """Whether a layer, from 0, sees a window only."""
        return self.sliding is not None and (layer + 1) % self.sliding.full_every != 0
