"""LoRA adapters as directories that the package peft and vLLM load, and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlsearch.errors import InputError, nearest
from rlsearch.interop import names, tensor_files
from rlsearch.interop.export import whole
from rlsearch.interop.stacking import check_finite, named
from rlsearch.models import lora
from rlsearch.models.decoder import DecoderConfig, Params
from rlsearch.models.lora import MATRICES, LoraConfig
from rlsearch.tokenization.hub_files import read_json, write_json

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_STORED = ("float32", "bfloat16", "float16")

# What changes the sum of W and (alpha / r) A B; nothing of it can be said here.
_REFUSED = (
    "alora_invocation_tokens", "alpha_pattern", "fan_in_fan_out", "kasa_config", "layer_replication", "lora_bias",
    "modules_to_save", "monteclora_config", "rank_pattern", "target_parameters", "trainable_token_indices",
    "use_bdlora", "use_dora", "use_qalora", "use_rslora", "velora_config",
)  # fmt: skip


def export_adapter(directory: Path, adapter: Params, cfg: DecoderConfig, config: LoraConfig, *, base: str) -> None:
    """Writes an adapter's config and tensors, reads them back, and only then gives the directory its name.

    An earlier adapter of the same name is replaced; anything else there is left alone and refused.

    Args:
      directory: where.
      adapter: ``{"lora": ...}``, as ``lora.init`` makes it, in host memory or on devices.
      cfg: the architecture of the model that it is of.
      config: what the adapter is.
      base: where that model is: a directory, or a name on a hub.

    Raises:
      InputError: a matrix that the model does not have, a value that is not finite, or a directory that holds something
        else.
      RuntimeError: what was read back differs from what was written.
    """
    directory = Path(directory)
    lora.check(config, cfg)
    with whole(directory, earlier=(TENSORS,)) as partial:
        described = {name: (part.shape, part.dtype) for name, part in _shapes(cfg, config)}
        data = _tensors(adapter, cfg, config)
        tensor_files.write(partial, described, data, shard_bytes=1 << 62, single=TENSORS)
        write_json(partial / CONFIG, _content(cfg, config, base))
        read_config, read = import_adapter(partial, cfg)
        if set(read_config.matrices) != set(config.matrices) or read_config.scale != config.scale:
            raise RuntimeError(f"{partial}: reads back as {read_config}, was written as {config}")
        for (name, array), (_, again) in zip(
            _tensors(adapter, cfg, config), _tensors(read, cfg, config), strict=True
        ):  # fmt: skip
            if array.tobytes() != again.tobytes():
                raise RuntimeError(f"{partial}: {name} reads back differently from what was written")


def import_adapter(directory: Path, cfg: DecoderConfig) -> tuple[LoraConfig, Params]:
    """Reads an adapter of a model with the architecture ``cfg``; its matrices are those that there are tensors of.

    Returns:
      What the adapter is, and ``{"lora": ...}`` as NumPy arrays in float32.

    Raises:
      InputError: another method than LoRA, an option of peft that changes what is computed, or a tensor that is
        missing, left over, misshapen, of another type or not finite.
    """
    directory = Path(directory)
    content = read_json(directory / CONFIG)
    _check(content, where=str(directory / CONFIG))
    with tensor_files.TensorFiles(directory, single=TENSORS) as files:
        left = set(files.names)
        found = tuple(name for name in _rows(cfg) if any(key in left for key, *_ in _places(name, cfg)))
        if not found:
            raise InputError(f"{directory / TENSORS}: no tensor of a {cfg.family} model's adapter{_first(left)}")
        config = LoraConfig(rank=content["r"], alpha=float(content["lora_alpha"]), matrices=found)
        lora.check(config, cfg)
        shapes = jax.eval_shape(lambda key: lora.init(key, cfg, config), jax.random.key(0))
        adapter = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), shapes)
        for name in found:
            matrix = MATRICES[name]
            for key, leaf, index in _places(name, cfg):
                if key not in left:
                    raise InputError(f"{directory / TENSORS}: no tensor {key!r}; every layer needs one")
                place = matrix.of(adapter["lora"])[leaf][index]
                place[...] = _read(files.read(key), place.shape, leaf, f"{directory / TENSORS}: tensor {key!r}")
                left.remove(key)
    if left:
        hint = "" if not any("base_layer" in key for key in left) else (
            "; peft stored matrices of the model itself, save the adapter with save_embedding_layers=False"
        )  # fmt: skip
        raise InputError(
            f"{directory / TENSORS}: {len(left)} tensors have no place in an adapter of a {cfg.family}"
            f" model{_first(left)}{hint}"
        )
    return config, adapter


def _first(tensors: set[str]) -> str:
    return f": {', '.join(sorted(tensors)[:5])}"


def _rows(cfg: DecoderConfig) -> dict[str, str]:
    """The matrices that an adapter of a model can be of, and the names of their modules."""
    paths = {row.path: row.name.removesuffix(".weight") for row in names.rows(cfg)}
    wanted = {name: ".".join((*matrix.path, matrix.leaf)) for name, matrix in MATRICES.items()}
    return {name: paths[path] for name, path in wanted.items() if path in paths}


def _places(name: str, cfg: DecoderConfig) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """The tensors of a matrix's adapter: name, our leaf, and where in it, layer after layer."""
    kind = "lora_embedding_{}" if name == "embed" else "lora_{}.weight"
    for index in np.ndindex((cfg.n_layers,) if MATRICES[name].stacked else ()):
        for leaf in ("a", "b"):
            yield f"{_PREFIX}{named(_rows(cfg)[name], index)}.{kind.format(leaf.upper())}", leaf, index


def _flat(shape: tuple[int, ...], leaf: str) -> tuple[int, int]:
    """Our shape of a layer's A or B as two axes: inputs and rank, or rank and outputs."""
    return (int(np.prod(shape[:-1])), shape[-1]) if leaf == "a" else (shape[0], int(np.prod(shape[1:])))


def _shapes(cfg: DecoderConfig, config: LoraConfig) -> Iterator[tuple[str, jax.ShapeDtypeStruct]]:
    shapes = jax.eval_shape(lambda key: lora.init(key, cfg, config), jax.random.key(0))
    for name in config.matrices:
        for key, leaf, index in _places(name, cfg):
            shape = MATRICES[name].of(shapes["lora"])[leaf].shape[len(index) :]
            yield key, jax.ShapeDtypeStruct(_flat(shape, leaf)[::-1], jnp.float32)


def _tensors(adapter: Params, cfg: DecoderConfig, config: LoraConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor, its output axis first, contiguous."""
    for name in config.matrices:
        for key, leaf, index in _places(name, cfg):
            array = np.asarray(jax.device_get(MATRICES[name].of(adapter["lora"])[leaf][index]), np.float32)
            check_finite(array, f"adapter {name}.{leaf}")
            yield key, np.ascontiguousarray(array.reshape(_flat(array.shape, leaf)).T)


def _read(array: np.ndarray, shape: tuple[int, ...], leaf: str, where: str) -> np.ndarray:
    """A tensor as it lies with us."""
    wanted = _flat(shape, leaf)[::-1]
    if array.shape != wanted:
        raise InputError(f"{where} has shape {list(array.shape)}, the model and the rank say {list(wanted)}")
    if str(array.dtype) not in _STORED:
        raise InputError(f"{where} is {array.dtype}, must be one of {', '.join(_STORED)}")
    check_finite(array, where)
    return array.T.reshape(shape)


def _content(cfg: DecoderConfig, config: LoraConfig, base: str) -> dict[str, Any]:
    """``adapter_config.json``."""
    modules = sorted(_rows(cfg)[name].rpartition(".")[2] for name in config.matrices)
    return {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "inference_mode": True,
        "r": config.rank, "lora_alpha": int(config.alpha) if config.alpha == int(config.alpha) else config.alpha,
        "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False, "target_modules": modules,
        "modules_to_save": None, "layers_to_transform": None, "layers_pattern": None, "rank_pattern": {},
        "alpha_pattern": {}, "init_lora_weights": True, "use_rslora": False, "use_dora": False,
    }  # fmt: skip


def _check(content: dict[str, Any], *, where: str) -> None:
    """Refuses what is no plain LoRA."""
    if content.get("peft_type") != "LORA":
        raise InputError(
            f"{where}: peft_type is {content.get('peft_type')!r}{nearest(str(content.get('peft_type')), ['LORA'])}"
        )
    for key, kind in (("r", int), ("lora_alpha", int | float)):
        if not isinstance(content.get(key), kind) or isinstance(content[key], bool):
            raise InputError(f"{where}: {key} is {content.get(key)!r}, needs a number")
    if content.get("bias", "none") != "none":
        raise InputError(f"{where}: bias is {content['bias']!r}; only 'none' is supported")
    for key in _REFUSED:
        if content.get(key):
            raise InputError(f"{where}: {key} is {content[key]!r}, which is not supported; only plain LoRA is")
