"""The small files beside a tokenizer that Hugging Face ``AutoTokenizer`` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlsearch.errors import InputError

# transformers (5.x) loads every tokenizer of a qwen2 model as byte-level BPE, whatever class its configuration names,
# and gets other ids from a unigram tokenizer.json without a word. It makes an exception for a directory that names a
# class of its own. With or without trust_remote_code it then reads tokenizer.json as it stands.
OWN_CLASS_FILE = "tokenization_rlsearch.py"
OWN_CLASS = '''"""The tokenizer here is tokenizer.json as it stands, not the class usual for the model's family."""

from transformers import PreTrainedTokenizerFast


class RlsearchTokenizer(PreTrainedTokenizerFast):
    pass
'''
OWN_CLASS_MAP = {"AutoTokenizer": [None, "tokenization_rlsearch.RlsearchTokenizer"]}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
      InputError: no such file, or no JSON object in it.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a directory in Hugging Face format")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); is the file cut short?") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, needs a JSON object")
    return content


def write_json(path: Path, content: Any) -> None:
    """Writes indented UTF-8 JSON with a final newline."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tokenizer_files(
    directory: Path, *, tokenizer_json: str, config: dict[str, Any], specials: dict[str, str]
) -> None:
    """Writes ``tokenizer.json``, ``tokenizer_config.json``, ``special_tokens_map.json``, ``chat_template.jinja``.

    Args:
      directory: where; made if missing.
      tokenizer_json: what the ``tokenizers`` library reads.
      config: the rest of ``tokenizer_config.json``; a ``chat_template`` in it gets a file of its own besides.
      specials: such as ``{"eos_token": "</s>", "pad_token": "<pad>"}``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    write_json(directory / "tokenizer_config.json", {**config, **specials})
    write_json(directory / "special_tokens_map.json", specials)
    if config.get("auto_map") == OWN_CLASS_MAP:
        (directory / OWN_CLASS_FILE).write_text(OWN_CLASS, encoding="utf-8")
    if "chat_template" in config:
        (directory / "chat_template.jinja").write_text(config["chat_template"], encoding="utf-8")


def plain_config() -> dict[str, Any]:
    """``tokenizer_config.json`` of a tokenizer that is its ``tokenizer.json`` and adds nothing around a text."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
        "add_eos_token": False,
        "auto_map": OWN_CLASS_MAP,
    }
