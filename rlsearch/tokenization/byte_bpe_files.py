"""Where byte-level BPE tokenizers come from: a Hugging Face directory, or the metadata of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsearch.errors import InputError
from rlsearch.tokenization.byte_bpe import ByteBPETokenizer, check_document
from rlsearch.tokenization.hub_files import plain_config

_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}

# Words with the character before them, numbers, signs and runs of whitespace, as GPT-4's tokenizer cuts them.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _cut(numbers: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": _WORDS % numbers}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**_BYTES, "use_regex": False}]}


# How text is cut before merging, by the name that GGUF gives it.
PRE_TOKENIZERS = {
    "qwen2": _cut(r"\p{N}"),
    "llama-bpe": _cut(r"\p{N}{1,3}"),
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTES]},
}

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type


def load(directory: Path) -> ByteBPETokenizer:
    """Reads ``tokenizer.json``, ``tokenizer_config.json`` and, where there is one, ``generation_config.json``.

    The ends of text are the tokenizer's ``eos_token``, then those of ``generation_config.json`` (one id or several).

    Raises:
      InputError: a file is missing, is not JSON, or describes anything but byte-level BPE with an end and a padding.
    """
    directory = Path(directory)
    document = _read_json(directory / "tokenizer.json")
    check_document(document, str(directory / "tokenizer.json"))
    config = _read_json(directory / "tokenizer_config.json")
    template = directory / "chat_template.jinja"
    if template.is_file():
        config["chat_template"] = template.read_text(encoding="utf-8")
    ids = {token["content"]: token["id"] for token in document["added_tokens"]} | document["model"]["vocab"]
    named = {key: _token_id(config, key, ids, directory) for key in ("eos_token", "pad_token")}
    generation = directory / "generation_config.json"
    ends = _read_json(generation).get("eos_token_id") if generation.is_file() else None
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    eos_ids = tuple(dict.fromkeys([named["eos_token"], *ends]))
    return ByteBPETokenizer(document, pad_id=named["pad_token"], eos_ids=eos_ids, config=config)


def from_gguf(metadata: Mapping[str, Any], *, where: str) -> ByteBPETokenizer:
    """Rebuilds the tokenizer that a GGUF file describes.

    Args:
      metadata: the file's fields by name, as Python values.
      where: the file, for messages.

    Raises:
      InputError: a field is missing, or the kind of tokenizer is not known here.
    """
    try:
        return _from_gguf(metadata, where)
    except KeyError as error:
        raise InputError(f"{where}: no field {error.args[0]!r}; the file does not hold its whole tokenizer") from error


def _from_gguf(metadata: Mapping[str, Any], where: str) -> ByteBPETokenizer:
    kind, cut = metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"]
    if kind != "gpt2" or cut not in PRE_TOKENIZERS:
        known = ", ".join(PRE_TOKENIZERS)
        raise InputError(f"{where}: tokenizer {kind!r} with pre-tokenizer {cut!r}; known are 'gpt2' with {known}")
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    document = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, **flags, "special": kind == _CONTROL}
            for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind in (_CONTROL, _USER_DEFINED)
        ],
        "normalizer": {"type": "NFC"} if cut == "qwen2" else None,
        "pre_tokenizer": PRE_TOKENIZERS[cut],
        "post_processor": None,
        "decoder": _BYTES,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "ignore_merges": cut == "llama-bpe",
            "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]],
        },
    }
    check_document(document, where)
    eos, pad = metadata["tokenizer.ggml.eos_token_id"], metadata["tokenizer.ggml.padding_token_id"]
    config = plain_config()
    for key, field in (("bos_token", "tokenizer.ggml.bos_token_id"), ("unk_token", "tokenizer.ggml.unknown_token_id")):
        if field in metadata:
            config[key] = tokens[metadata[field]]
    if "tokenizer.chat_template" in metadata:
        config["chat_template"] = metadata["tokenizer.chat_template"]
    eos_ids = tuple(dict.fromkeys([eos, *(metadata[k] for k in ("tokenizer.ggml.eot_token_id",) if k in metadata)]))
    return ByteBPETokenizer(document, pad_id=pad, eos_ids=eos_ids, config=config)


def _token_id(config: dict[str, Any], key: str, ids: dict[str, int], directory: Path) -> int:
    token = config.get(key)
    token = token["content"] if isinstance(token, dict) else token
    if token not in ids:
        raise InputError(
            f"{directory / 'tokenizer_config.json'}: {key} is {token!r}, which is no token of tokenizer.json; name one"
        )
    return ids[token]


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: no such file; a tokenizer needs tokenizer.json and tokenizer_config.json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); is the file cut short?") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, needs a JSON object")
    return content
