"""What a tokenizer is: one protocol over SentencePiece and byte-level BPE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Tokenizer(Protocol):
    """Text to ids and back.

    ``encode`` takes text that nobody vouches for and never yields a special token or a control tag;
    ``encode_control`` takes the program's own templates, in which both are recognised.
    """

    vocab_size: int
    pad_id: int
    eos_ids: tuple[int, ...]

    def encode(self, text: str) -> list[int]: ...

    def encode_control(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def token_bytes(self) -> list[bytes]: ...

    def save(self, directory: Path) -> None: ...
