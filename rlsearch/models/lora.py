"""LoRA (Hu et al., 2022, arXiv 2106.09685, section 4.1): y = x W + (alpha / r) (x A) B, with W frozen.

An adapter is a tree of its own, ``{"lora": {"blocks": {"attn": {"q": {"a": A, "b": B}}}}}``: the paths of the matrices
that it is of, with layers stacked as theirs are. A has the matrix's input axes and then r, B has r and then its output
axes. Adapters are float32 whatever the matrices are: their updates are too small for less.
Axes: L layers, r rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from rlsearch.errors import InputError, nearest
from rlsearch.models import decoder
from rlsearch.models.decoder import DecoderConfig, Params


class Matrix(NamedTuple):
    """Where a matrix is among the parameters, and how many of its axes are inputs."""

    path: tuple[str, ...]
    leaf: str
    inputs: int

    @property
    def stacked(self) -> bool:
        """Whether axis 0 is the layer."""
        return self.path[0] == "blocks"

    def of(self, tree: Params) -> Any:
        """What lies at the path."""
        for key in self.path:
            tree = tree[key]
        return tree


MATRICES = {
    **{name: Matrix(("blocks", "attn", name), "kernel", 1) for name in ("q", "k", "v")},
    "o": Matrix(("blocks", "attn", "o"), "kernel", 2),
    **{name: Matrix(("blocks", "mlp", name), "kernel", 1) for name in ("gate", "up", "down")},
    "embed": Matrix(("embed",), "embedding", 1),
    "head": Matrix(("head",), "kernel", 1),
}


@dataclass(frozen=True)
class LoraConfig:
    """An adapter: its rank, its strength, and which matrices it is of; there is no dropout."""

    rank: int
    alpha: float  # the product of A and B is multiplied by alpha / rank
    matrices: tuple  # names in MATRICES

    def __post_init__(self):
        if self.rank < 1 or not self.alpha > 0:
            raise InputError(f"lora: rank {self.rank} must be 1 or more, and alpha {self.alpha} above 0")
        for name in self.matrices:
            if name not in MATRICES:
                raise InputError(f"lora: matrices has {name!r}, which is unknown{nearest(str(name), MATRICES)}")
        if not self.matrices or len(set(self.matrices)) < len(self.matrices):
            raise InputError(f"lora: matrices is {self.matrices}; name one or more of {', '.join(MATRICES)}, each once")

    @property
    def scale(self) -> float:
        """What the product of A and B is multiplied by."""
        return self.alpha / self.rank


def check(config: LoraConfig, cfg: DecoderConfig) -> None:
    """Checks that a model has the matrices that an adapter is of.

    Raises:
      InputError: feed-forward matrices of a mixture of experts, or an embedding that is the head as well.
    """
    for name in config.matrices:
        if MATRICES[name].path[:2] == ("blocks", "mlp") and cfg.experts is not None:
            raise InputError(
                f"lora: matrices has {name!r}, of which this {cfg.family} model has one for each of its"
                f" {cfg.experts.count} experts; experts take no adapter, leave gate, up and down out"
            )
        if not MATRICES[name].stacked and cfg.tied:
            raise InputError(
                f"lora: matrices has {name!r}, but the head of this {cfg.family} model is its embedding, which"
                f" cannot be adapted in one place only; leave embed and head out"
            )


def init(key: Array, cfg: DecoderConfig, config: LoraConfig) -> Params:
    """A fresh adapter, whose products are all zero: the model starts as it was.

    A is uniform within one over the root of the inputs and B zero, as in the package peft; for an embedding, whose
    input is one id, A is zero and B standard normal.

    Raises:
      InputError: see :func:`check`.
    """
    check(config, cfg)
    shapes = jax.eval_shape(partial(decoder.init, cfg=cfg), jax.random.key(0))
    tree: Params = {}
    for name, own in zip(config.matrices, jax.random.split(key, len(config.matrices)), strict=True):
        matrix = MATRICES[name]
        shape = matrix.of(shapes)[matrix.leaf].shape
        layers, shape = (shape[:1], shape[1:]) if matrix.stacked else ((), shape)
        inputs, outputs = shape[: matrix.inputs], shape[matrix.inputs :]
        a, b = (*layers, *inputs, config.rank), (*layers, config.rank, *outputs)
        if name == "embed":
            pair = {"a": jnp.zeros(a), "b": jax.random.normal(own, b)}
        else:
            bound = math.prod(inputs) ** -0.5
            pair = {"a": jax.random.uniform(own, a, minval=-bound, maxval=bound), "b": jnp.zeros(b)}
        tree = _changed(tree, matrix.path, lambda _, pair=pair: pair)
    return {"lora": tree}


def attach(params: Params, config: LoraConfig) -> Params:
    """Parameters with an adapter beside them, as the decoder reads them: A and (alpha / r) B beside each matrix."""
    return _each(params, config, lambda matrix, leaves, a, b: {**leaves, "lora_a": a, "lora_b": config.scale * b})


def merge(params: Params, config: LoraConfig) -> Params:
    """Parameters with an adapter beside them as those of an ordinary model, W + (alpha / r) A B.

    The sum is rounded to the type of W, so that a model in bfloat16 is not exactly the one that was trained.
    """

    def merged(matrix: Matrix, leaves: Params, a: Array, b: Array) -> Params:
        return {**leaves, matrix.leaf: _add(leaves[matrix.leaf], a, config.scale * b, stacked=matrix.stacked)}

    return _each(params, config, merged)


def _add(kernel: Array, a: Array, b: Array, *, stacked: bool) -> Array:
    """W + A B, computed in float32, in the type of W."""
    product = partial(jnp.tensordot, axes=1, precision=jax.lax.Precision.HIGHEST)
    change = (jax.vmap(product) if stacked else product)(a, b)
    return (kernel.astype(jnp.float32) + change).astype(kernel.dtype)


def _each(params: Params, config: LoraConfig, change: Callable) -> Params:
    """``change(matrix, leaves, a, b)`` in the place of the leaves of every adapted matrix."""
    found = {name: value for name, value in params.items() if name != "lora"}
    for matrix in map(MATRICES.get, config.matrices):
        pair = matrix.of(params["lora"])
        found = _changed(
            found, matrix.path, lambda leaves, matrix=matrix, pair=pair: change(matrix, leaves, pair["a"], pair["b"])
        )
    return found


def _changed(tree: Params, path: tuple[str, ...], change: Callable) -> Params:
    """A copy of nested dicts with one value changed; what is missing on the way is made."""
    if not path:
        return change(tree)
    return {**tree, path[0]: _changed(tree.get(path[0], {}), path[1:], change)}
