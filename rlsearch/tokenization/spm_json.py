"""A SentencePiece unigram model as a ``tokenizer.json``, for libraries that read nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sentencepiece import sentencepiece_model_pb2

from rlsearch.errors import InputError
from rlsearch.tokenization.spm_training import SPACE

_Piece = sentencepiece_model_pb2.ModelProto.SentencePiece
_UNIGRAM = sentencepiece_model_pb2.TrainerSpec.ModelType.UNIGRAM


def tokenizer_json(model: sentencepiece_model_pb2.ModelProto) -> str:
    """The same ids from the ``tokenizers`` library as from SentencePiece, tags and special tokens recognised.

    Raises:
      InputError: the model is not a unigram model.
    """
    if model.trainer_spec.model_type != _UNIGRAM:
        kind = sentencepiece_model_pb2.TrainerSpec.ModelType.Name(model.trainer_spec.model_type)
        raise InputError(f"SentencePiece model of type {kind}: only UNIGRAM can be written as tokenizer.json")
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(model.pieces),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        # Library and SentencePiece differ in one thing: the library would read the text "<0x0A>" as a byte. Cut there.
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "<(?=0x)"}, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "Unigram",
            "unk_id": next(i for i, piece in enumerate(model.pieces) if piece.type == _Piece.UNKNOWN),
            "vocab": [(piece.piece, piece.score) for piece in model.pieces],
            "byte_fallback": True,
        },
    }
    return json.dumps(document, ensure_ascii=False)


def _added_tokens(pieces: Sequence[_Piece]) -> list[dict]:
    kinds = {_Piece.CONTROL: True, _Piece.UNKNOWN: True, _Piece.USER_DEFINED: False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": i, "content": piece.piece, **flags, "special": kinds[piece.type]}
        for i, piece in enumerate(pieces)
        if piece.type in kinds
    ]
