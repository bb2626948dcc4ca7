"""SentencePiece behind the tokenizer protocol."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from rlsearch.errors import InputError
from rlsearch.tokenization.hub_files import plain_config, write_tokenizer_files
from rlsearch.tokenization.spm_json import tokenizer_json
from rlsearch.tokenization.spm_training import SPACE, train_model

MODEL_FILE = "tokenizer.model"

_Piece = sentencepiece_model_pb2.ModelProto.SentencePiece


class SentencePieceTokenizer:
    """Text to ids and back with a unigram model; padding, unknown and end of text have ids of their own.

    Spaces are pieces' first characters, and no space is added: ``" Karlon"`` may be one piece where ``"Karlon"`` is
    several. A character outside the vocabulary becomes its UTF-8 bytes, so ``decode(encode(text)) == text`` for any
    text without U+2581, which SentencePiece cannot tell from a space.
    """

    def __init__(self, model: bytes, *, chat_template: str | None = None):
        self._model = model
        self.chat_template = chat_template
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        self._pieces = self._proto.pieces
        self.vocab_size: int = len(self._pieces)
        self.pad_id: int = self._processor.pad_id()
        self.unk_id: int = self._processor.unk_id()
        self.eos_ids: tuple[int, ...] = (self._processor.eos_id(),)
        kinds = (_Piece.CONTROL, _Piece.UNKNOWN, _Piece.USER_DEFINED)
        self._control = {p.piece: i for i, p in enumerate(self._pieces) if p.type in kinds}
        alternatives = "|".join(re.escape(text) for text in sorted(self._control, key=len, reverse=True))
        self._split_control = re.compile(f"({alternatives})")
        self._inside_control = re.compile(f"(?={alternatives})")

    def encode(self, text: str) -> list[int]:
        """Ids of text that nobody vouches for; a tag in it is cut after its first character and stays text."""
        cuts = [match.start() + 1 for match in self._inside_control.finditer(text)]
        parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        return [i for part in parts for i in self._processor.encode(part)]

    def encode_control(self, text: str) -> list[int]:
        """Ids of the program's own text, in which tags and special tokens are recognised."""
        ids: list[int] = []
        for part in self._split_control.split(text):
            ids.extend([self._control[part]] if part in self._control else self._processor.encode(part))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, tags and special tokens included; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self._bytes.__getitem__, ids)).decode("utf-8", errors="replace")

    def token_bytes(self) -> list[bytes]:
        """The bytes that each id stands for; a special token stands for its name."""
        return list(self._bytes)

    @functools.cached_property
    def _bytes(self) -> list[bytes]:
        return [
            bytes([int(p.piece[3:5], 16)]) if p.type == _Piece.BYTE else p.piece.replace(SPACE, " ").encode()
            for p in self._pieces
        ]

    def check(self, where: str) -> None:
        """Refuses a model that would change text or that lacks ids of its own for padding, unknown and end."""
        normalizer, ids = self._proto.normalizer_spec, (self.pad_id, self.unk_id, *self.eos_ids)
        if normalizer.add_dummy_prefix or normalizer.remove_extra_whitespaces or normalizer.name != "identity":
            raise InputError(
                f"{where}: normalises text (name={normalizer.name!r}, add_dummy_prefix={normalizer.add_dummy_prefix}, "
                f"remove_extra_whitespaces={normalizer.remove_extra_whitespaces}); needs 'identity', False, False"
            )
        if min(ids) < 0 or len(set(ids)) < len(ids):
            raise InputError(f"{where}: padding, unknown and end of text need ids of their own, got {ids}")
        if not any(piece.type == _Piece.BYTE for piece in self._pieces):
            raise InputError(f"{where}: trained without byte_fallback, so characters could be lost; train it with")

    @property
    def specials(self) -> dict[str, str]:
        """Special tokens by the names that chat templates use."""
        name = self._processor.id_to_piece
        return {"eos_token": name(self.eos_ids[0]), "pad_token": name(self.pad_id), "unk_token": name(self.unk_id)}

    def save(self, directory: Path) -> None:
        """Writes ``tokenizer.model`` and the files that Hugging Face ``AutoTokenizer`` loads."""
        config = plain_config() | ({} if self.chat_template is None else {"chat_template": self.chat_template})
        write_tokenizer_files(
            directory, tokenizer_json=tokenizer_json(self._proto), config=config, specials=self.specials
        )
        (directory / MODEL_FILE).write_bytes(self._model)


def train(
    lines: Iterable[str], *, whole_words: Sequence[str], vocab_size: int, tags: Sequence[str]
) -> SentencePieceTokenizer:
    """Trains a tokenizer; see :func:`rlsearch.tokenization.spm_training.train_model`."""
    return SentencePieceTokenizer(train_model(lines, whole_words=whole_words, vocab_size=vocab_size, tags=tags))


def load(path: Path) -> SentencePieceTokenizer:
    """Reads ``tokenizer.model`` from a directory or the file itself.

    Raises:
      InputError: no such file, or not a SentencePiece model with padding, unknown and end ids of its own.
    """
    path = Path(path)
    path = path / MODEL_FILE if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a directory that holds {MODEL_FILE}")
    try:
        template = path.with_name("chat_template.jinja")
        chat = template.read_text(encoding="utf-8") if template.is_file() else None
        tokenizer = SentencePieceTokenizer(path.read_bytes(), chat_template=chat)
    except (RuntimeError, DecodeError) as error:
        raise InputError(f"{path}: not a SentencePiece model ({error}); is the file cut short?") from error
    tokenizer.check(str(path))
    return tokenizer
