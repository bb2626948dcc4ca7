"""Where byte-level BPE tokenizers come from: a Hugging Face directory, or the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsearch.errors import InputError
from rlsearch.tokenization.byte_bpe import SPACE, ByteBPETokenizer, check_document
from rlsearch.tokenization.hub_files import plain_config, read_json

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

_USUAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # values of tokenizer.ggml.token_type


def load(directory: Path) -> ByteBPETokenizer:
    """Reads ``tokenizer.json``, ``tokenizer_config.json`` and, where there is one, ``generation_config.json``.

    The ends of text are the tokenizer's ``eos_token``, then those of ``generation_config.json`` (one id or several).

    Raises:
      InputError: a file is missing, is not JSON, or describes anything but byte-level BPE with an end and a padding.
    """
    directory = Path(directory)
    document = read_json(directory / "tokenizer.json")
    check_document(document, str(directory / "tokenizer.json"))
    config = read_json(directory / "tokenizer_config.json")
    template = directory / "chat_template.jinja"
    if template.is_file():
        config["chat_template"] = template.read_text(encoding="utf-8")
    ids = {token["content"]: token["id"] for token in document["added_tokens"]} | document["model"]["vocab"]
    config.setdefault("pad_token", config.get("eos_token"))  # Llama 3 names none: its end of text fills rows
    named = {key: _token_id(config, key, ids, directory) for key in ("eos_token", "pad_token")}
    generation = directory / "generation_config.json"
    ends = read_json(generation).get("eos_token_id") if generation.is_file() else None
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    eos_ids = tuple(dict.fromkeys([named["eos_token"], *ends]))
    return ByteBPETokenizer(document, pad_id=named["pad_token"], eos_ids=eos_ids, config=config)


def is_bpe(directory: Path) -> bool:
    """Whether a directory holds a ``tokenizer.json`` whose model is BPE."""
    path = Path(directory) / "tokenizer.json"
    return path.is_file() and (read_json(path).get("model") or {}).get("type") == "BPE"


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


def _merges(tokens: list[str], scores: list[float]) -> list[list[str]]:
    """The merges of a vocabulary of scored pieces, best first: each cut of a piece into two, by the piece's score."""
    place = {token: i for i, token in enumerate(tokens)}
    found = [
        (-scores[i], place[token[:cut]], place[token[cut:]], [token[:cut], token[cut:]])
        for i, token in enumerate(tokens)
        for cut in range(1, len(token))
        if token[:cut] in place and token[cut:] in place
    ]
    return [pair for *_, pair in sorted(found)]


def _gemma(metadata: Mapping[str, Any], kinds: list[int]) -> dict[str, Any]:
    """What a vocabulary of scored pieces has in place of the byte alphabet; no space is put before a text."""
    usual = [i for i, kind in enumerate(kinds) if kind == _USUAL]
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    return {
        "normalizer": space,
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": _merges([tokens[i] for i in usual], [scores[i] for i in usual]),
            "byte_fallback": True,
            "unk_token": tokens[metadata["tokenizer.ggml.unknown_token_id"]],
            "fuse_unk": True,
        },
    }


def _from_gguf(metadata: Mapping[str, Any], where: str) -> ByteBPETokenizer:
    kind, cut = metadata["tokenizer.ggml.model"], metadata.get("tokenizer.ggml.pre", "default")
    scored = kind == "llama" and not metadata.get("tokenizer.ggml.add_space_prefix", True)
    if not scored and (kind != "gpt2" or cut not in PRE_TOKENIZERS):
        known = ", ".join(PRE_TOKENIZERS)
        raise InputError(
            f"{where}: tokenizer {kind!r} with pre-tokenizer {cut!r}; known are 'gpt2' with {known}, and"
            f" 'llama' without a space before texts"
        )
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    bytewise = {
        "normalizer": {"type": "NFC"} if cut == "qwen2" else None,
        "pre_tokenizer": PRE_TOKENIZERS.get(cut),
        "decoder": _BYTES,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "ignore_merges": cut == "llama-bpe",
            "merges": [merge.split(" ") for merge in metadata.get("tokenizer.ggml.merges", [])],
        },
    }
    if not scored and "tokenizer.ggml.merges" not in metadata:
        raise KeyError("tokenizer.ggml.merges")
    document = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, **flags, "normalized": SPACE in token, "special": kind != _USER_DEFINED}
            for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ],
        "post_processor": None,
        **(_gemma(metadata, kinds) if scored else bytewise),
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
