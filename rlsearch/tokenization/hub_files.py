"""The small files beside a tokenizer that Hugging Face ``AutoTokenizer`` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any) -> None:
    """Writes indented UTF-8 JSON with a final newline."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tokenizer_files(
    directory: Path, *, tokenizer_json: str, specials: dict[str, str], chat_template: str | None
) -> None:
    """Writes ``tokenizer.json``, ``tokenizer_config.json``, ``special_tokens_map.json``, ``chat_template.jinja``.

    Args:
      directory: where; made if missing.
      tokenizer_json: what the ``tokenizers`` library reads.
      specials: such as ``{"eos_token": "</s>", "pad_token": "<pad>"}``.
      chat_template: Jinja source, or None for a tokenizer without one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
        "add_eos_token": False,
        **specials,
    }
    if chat_template is not None:
        config["chat_template"] = chat_template
        (directory / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    write_json(directory / "tokenizer_config.json", config)
    write_json(directory / "special_tokens_map.json", specials)
