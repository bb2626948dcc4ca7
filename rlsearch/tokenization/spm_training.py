"""Training a SentencePiece vocabulary that is as small as its text allows and keeps chosen words whole."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from rlsearch.errors import InputError

PAD, UNKNOWN, END = "<pad>", "<unk>", "</s>"
SPACE = "\u2581"  # SentencePiece writes a space so

_Piece = sentencepiece_model_pb2.ModelProto.SentencePiece

# Scores are rounded to multiples of this. Sums of them are then exact in float32 for any text of fewer than some
# 5,000 tokens, so that every implementation of the Viterbi search, whatever its precision, breaks ties alike.
_SCORE_STEP = 2.0**-8


def train_model(lines: Iterable[str], *, whole_words: Sequence[str], vocab_size: int, tags: Sequence[str]) -> bytes:
    """Trains a unigram model; returns the serialised ``ModelProto``. The same arguments give the same bytes.

    The text is kept as it is (identity normalisation, no dummy prefix, spaces kept), a character never seen falls
    back to its UTF-8 bytes, digits stand alone, and a piece holds no space except as its first character. Each line
    is read as if a space stood before it, which is how words should be rendered to be one piece.

    Args:
      lines: the text that the model will read, as it will be rendered; tags in it are tags.
      whole_words: words without spaces, each of which becomes one piece when a space precedes it.
      vocab_size: the most pieces; pieces that neither the lines nor the whole words use are left out.
      tags: control tags, each a piece of its own that no plain text produces.

    Raises:
      InputError: no text, a whole word that holds a space, or a ``vocab_size`` too small for what has to be in it.
    """
    for word in whole_words:
        if not word or any(character.isspace() or character == SPACE for character in word):
            raise InputError(f"whole_words: {word!r} is empty or holds white space; give single words")
    text = [" " + part.lstrip(" ") for line in lines for part in line.split("\n") if part.strip()]
    words = [" " + word for word in dict.fromkeys(whole_words)]
    if not text:
        raise InputError("SentencePiece training: no text in the lines given; give at least one line that is not blank")
    model = _learn(text + words, vocab_size, tags)
    pieces = [SPACE + word[1:] for word in words]
    _keep_whole(model, pieces)
    _drop_unused(model, text, {SPACE, *pieces}, vocab_size)
    return model.SerializeToString()


def _learn(sentences: list[str], vocab_size: int, tags: Sequence[str]) -> sentencepiece_model_pb2.ModelProto:
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=written, model_type="unigram", vocab_size=vocab_size,
            hard_vocab_limit=False, user_defined_symbols=list(tags), byte_fallback=True, character_coverage=1.0,
            normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False,
            split_digits=True, split_by_unicode_script=True, split_by_number=True, split_by_whitespace=True,
            max_sentence_length=1 << 24, num_threads=1, minloglevel=2,
            pad_id=0, unk_id=1, eos_id=2, bos_id=-1, pad_piece=PAD, unk_piece=UNKNOWN, eos_piece=END,
        )  # fmt: skip
    except (RuntimeError, OSError) as error:
        raise InputError(
            f"SentencePiece training with vocab_size={vocab_size} on {len(sentences)} lines failed: {error}; "
            f"{256 + 3 + len(tags)} pieces are bytes, specials and tags, and every character of the text needs one more"
        ) from error
    model = sentencepiece_model_pb2.ModelProto.FromString(written.getvalue())
    for piece in model.pieces:
        piece.score = round(piece.score / _SCORE_STEP) * _SCORE_STEP
    return model


def _keep_whole(model: sentencepiece_model_pb2.ModelProto, words: list[str]) -> None:
    """Gives each word a piece that outscores any split of it: more than twice the best score of any piece."""
    known = {piece.piece: piece for piece in model.pieces if piece.type == _Piece.NORMAL}
    if SPACE not in known:
        known[SPACE] = model.pieces.add(piece=SPACE, score=min(p.score for p in known.values()), type=_Piece.NORMAL)
    floor = 2 * max(piece.score for piece in known.values()) + _SCORE_STEP
    for word in words:
        if word not in known:
            known[word] = model.pieces.add(piece=word, score=floor, type=_Piece.NORMAL)
        known[word].score = max(known[word].score, floor)


def _drop_unused(model: sentencepiece_model_pb2.ModelProto, text: list[str], needed: set[str], vocab_size: int) -> None:
    """Leaves out the pieces that segmenting the text never uses, then the least used, down to ``vocab_size``.

    Leaving out a piece that is on no best path changes no best path. Characters left without a piece become bytes,
    except the space, whose bytes would read as U+2581.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    uses = Counter(piece for line in text for piece in processor.encode(line, out_type=str))
    fixed = [p for p in model.pieces if p.type != _Piece.NORMAL or p.piece in needed]
    if len(fixed) > vocab_size:
        raise InputError(
            f"vocab_size={vocab_size}: bytes, specials, tags and {len(needed)} whole words are already {len(fixed)} "
            f"pieces, and the rest of the text needs some more; raise vocab_size"
        )
    free = [p for p in model.pieces if p.type == _Piece.NORMAL and p.piece not in needed and uses[p.piece]]
    free = sorted(free, key=lambda piece: (-uses[piece.piece], piece.piece))[: vocab_size - len(fixed)]
    kept = [_Piece.FromString(piece.SerializeToString()) for piece in fixed + free]
    del model.pieces[:]
    model.pieces.extend(kept)
    model.trainer_spec.vocab_size = len(kept)
