"""BPE over bytes behind the tokenizer protocol: byte-level as in Qwen, Llama 3 and SmolLM, or as Gemma has it.

Byte-level vocabularies write every byte as a character of an alphabet; Gemma's write text with U+2581 for a space, and
what they do not know as bytes such as ``<0x0A>``.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from rlsearch.errors import InputError
from rlsearch.tokenization.hub_files import write_tokenizer_files

SPACE = "\u2581"
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class ByteBPETokenizer:
    """Text to ids and back with the ``tokenizers`` library.

    Padding may share its id with the end of text, as it does in many released models: nothing in rlsearch reads a
    meaning out of the value of an id. ``chat_template`` is Jinja source or None.
    """

    def __init__(self, document: dict[str, Any], *, pad_id: int, eos_ids: tuple[int, ...], config: dict[str, Any]):
        """
        Args:
          document: the content of a ``tokenizer.json``.
          pad_id: the id that fills rows.
          eos_ids: every id that ends a text, at least one; the first is the tokenizer's ``eos_token``.
          config: the content of ``tokenizer_config.json``, kept for saving.
        """
        self._document = {**document, "truncation": None, "padding": None}
        self._control = tokenizers.Tokenizer.from_str(json.dumps(self._document))
        # Without its added tokens a tokenizer cannot be talked into one, whatever the text says. Runs of whitespace,
        # which Gemma has among them, say nothing.
        harmless = [token for token in document["added_tokens"] if not token["content"].strip(f" \t\n\r{SPACE}")]
        self._plain = tokenizers.Tokenizer.from_str(json.dumps({**self._document, "added_tokens": harmless}))
        self._added = {token["id"]: token["content"] for token in document["added_tokens"]}
        self._config = dict(config)
        self.vocab_size: int = 1 + max([*document["model"]["vocab"].values(), *self._added])
        self.pad_id = pad_id
        self.eos_ids = eos_ids
        self.chat_template: str | None = config.get("chat_template")

    @property
    def specials(self) -> dict[str, str]:
        """Special tokens by the names that chat templates use, such as ``eos_token``."""
        named = {key: self._config[key] for key in ("bos_token", "unk_token") if self._config.get(key) is not None}
        named = {key: value["content"] if isinstance(value, dict) else value for key, value in named.items()}
        name = self._control.id_to_token
        return {**named, "eos_token": name(self.eos_ids[0]), "pad_token": name(self.pad_id)}

    def encode(self, text: str) -> list[int]:
        """Ids of text that nobody vouches for; special and added tokens in it stay text."""
        return self._plain.encode(text, add_special_tokens=False).ids

    def encode_control(self, text: str) -> list[int]:
        """Ids of the program's own text, in which special and added tokens are recognised."""
        return self._control.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self._bytes.__getitem__, ids)).decode("utf-8", errors="replace")

    def token_bytes(self) -> list[bytes]:
        """The bytes that each id stands for: a special token's name, nothing for an id without a token."""
        return list(self._bytes)

    @functools.cached_property
    def _bytes(self) -> list[bytes]:
        table = byte_alphabet()
        fallback = self._document["model"].get("byte_fallback", False)
        known = [b""] * self.vocab_size
        for token, index in self._document["model"]["vocab"].items():
            if index in self._added:
                continue
            if not fallback:
                known[index] = bytes(table[character] for character in token)
            elif _BYTE.fullmatch(token):
                known[index] = bytes([int(token[3:5], 16)])
            else:
                known[index] = token.replace(SPACE, " ").encode()
        for index, content in self._added.items():
            known[index] = (content.replace(SPACE, " ") if fallback else content).encode()
        return known

    def save(self, directory: Path) -> None:
        """Writes the files that Hugging Face ``AutoTokenizer`` loads, chat template included."""
        text = json.dumps(self._document, ensure_ascii=False)
        write_tokenizer_files(Path(directory), tokenizer_json=text, config=self._config, specials=self.specials)


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for (GPT-2's table, Radford et al., 2019)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def check_document(document: dict[str, Any], where: str) -> None:
    """Refuses a ``tokenizer.json`` that is not BPE over bytes of either kind.

    Raises:
      InputError: another model, another decoder, a token with a character outside the byte alphabet, or, where bytes
        have tokens of their own, one that has none.
    """
    kind = document.get("model", {}).get("type")
    if kind == "BPE" and document["model"].get("byte_fallback"):
        missing = [f"<0x{byte:02X}>" for byte in range(256) if f"<0x{byte:02X}>" not in document["model"]["vocab"]]
        if missing or '"ByteFallback"' not in json.dumps(document.get("decoder")):
            raise InputError(
                f"{where}: BPE with byte_fallback needs a token for each byte and a decoder 'ByteFallback'; it misses"
                f" {', '.join(missing[:3]) or 'the decoder'}"
            )
        return
    if kind != "BPE" or '"ByteLevel"' not in json.dumps(document.get("decoder")):
        decoder = (document.get("decoder") or {}).get("type")
        raise InputError(f"{where}: model {kind!r} with decoder {decoder!r}; only BPE with decoder 'ByteLevel' is read")
    added = {token["id"] for token in document["added_tokens"]}
    known = byte_alphabet()
    for token, index in document["model"]["vocab"].items():
        if index not in added and not all(character in known for character in token):
            raise InputError(f"{where}: token {index} is {token!r}, which is not written in the byte-level alphabet")
