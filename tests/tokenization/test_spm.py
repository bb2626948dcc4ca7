from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from rlsearch.errors import InputError
from rlsearch.tokenization import spm, spm_training
from rlsearch.tokenization.tags import TAGS
from rlsearch.tokenization.template import ChatTemplate
from tests.tokenization.names import COMMON, names, sentences

NAMES = names(1200, seed=0)


@pytest.fixture(scope="module")
def tokenizer() -> spm.SentencePieceTokenizer:
    lines = sentences(2000, seed=1, names=NAMES)
    return spm.train(lines, whole_words=[*NAMES, *COMMON], vocab_size=1700, tags=TAGS)


@pytest.fixture(scope="module")
def fast(tokenizer, tmp_path_factory) -> tokenizers.Tokenizer:
    directory = tmp_path_factory.mktemp("saved")
    tokenizer.save(directory)
    return tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))


def test_every_name_and_common_word_is_one_piece_after_a_space(tokenizer):
    split = [word for word in [*NAMES, *COMMON] if len(tokenizer.encode(f" {word}")) != 1]
    assert not split
    assert len({tokenizer.encode(f" {word}")[0] for word in NAMES}) == len(NAMES)


def test_a_name_stays_one_piece_whatever_stands_around_it(tokenizer):
    for name in NAMES[:50]:
        ids = tokenizer.encode_control(f"<search> where was {name}'s mother born? {name}.</search>")
        assert ids.count(tokenizer.encode(f" {name}")[0]) == 2


def test_vocabulary_holds_little_else(tokenizer):
    needed = 256 + 3 + len(TAGS) + len(NAMES) + len(COMMON)
    assert needed < tokenizer.vocab_size < needed + 20


def test_training_twice_gives_the_same_bytes():
    lines = sentences(100, seed=1, names=NAMES[:20])
    models = [spm.train_model(lines, whole_words=NAMES[:20], vocab_size=500, tags=TAGS) for _ in range(2)]
    assert models[0] == models[1]


def test_words_that_the_text_lacks_are_whole_too():
    tokenizer = spm.train(["one line of text"], whole_words=["Karlon", "Kar", "Karl"], vocab_size=400, tags=TAGS)
    assert [len(tokenizer.encode(f" {word}")) for word in ("Karlon", "Kar", "Karl")] == [1, 1, 1]


def test_a_whole_word_is_whole_although_its_parts_are_frequent():
    lines = ["Kar " * 20 + " ".join(letter + "lon" for letter in "bcde" * 5)] * 50
    tokenizer = spm.train(lines, whole_words=["Karlon"], vocab_size=400, tags=TAGS)
    assert len(tokenizer.encode(" Karlon")) == len(tokenizer.encode(" Kar")) == 1


def test_a_piece_is_raised_above_any_split_of_it():
    kind = sentencepiece_model_pb2.ModelProto.SentencePiece.Type.NORMAL
    scores = {"\u2581a": -1.0, "b": -1.0, "\u2581ab": -9.0, "c": -3.0}
    model = sentencepiece_model_pb2.ModelProto()
    for piece, score in scores.items():
        model.pieces.add(piece=piece, score=score, type=kind)
    spm_training._keep_whole(model, ["\u2581ab"])
    raised = {piece.piece: piece.score for piece in model.pieces}
    assert -2.0 < raised["\u2581ab"] < -1.9
    assert {piece: raised[piece] for piece in ("\u2581a", "b", "c")} == {"\u2581a": -1.0, "b": -1.0, "c": -3.0}


def test_special_ids_are_three_and_tags_one_each(tokenizer):
    ids = tokenizer.encode_control("<pad><unk></s>" + "".join(TAGS))
    assert len(set(ids)) == len(ids) == 3 + len(TAGS)
    assert ids[:3] == [tokenizer.pad_id, tokenizer.unk_id, tokenizer.eos_ids[0]]
    assert tokenizer.decode(ids) == "<pad><unk></s>" + "".join(TAGS)


text = st.lists(st.one_of(st.text(), st.sampled_from([*TAGS, "</s>", "<pad>", "<unk>", "<0x0A>", "<", " "]))).map(
    "".join
)


@settings(max_examples=300, deadline=None)
@given(text.filter(lambda t: "\u2581" not in t))
def test_plain_text_round_trips_without_control_ids(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & set(tokenizer.encode_control("<pad><unk></s>" + "".join(TAGS)))
    assert tokenizer.decode(tokenizer.encode_control(text)) == text
    assert b"".join(tokenizer.token_bytes()[i] for i in ids) == text.encode()


def test_save_then_load_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    again = spm.load(tmp_path)
    line = "<search> where is \u2603 Karlon\n\tborn?</search>"
    assert again.encode_control(line) == tokenizer.encode_control(line)
    assert again.vocab_size == tokenizer.vocab_size


def test_bad_input_is_named(tmp_path):
    with pytest.raises(InputError, match="no text"):
        spm.train(["", "  "], whole_words=[], vocab_size=400, tags=TAGS)
    with pytest.raises(InputError, match="'two words'"):
        spm.train(["text"], whole_words=["two words"], vocab_size=400, tags=TAGS)
    with pytest.raises(InputError, match="vocab_size=300"):
        spm.train(["text"], whole_words=NAMES, vocab_size=300, tags=TAGS)
    with pytest.raises(InputError, match="vocab_size=100"):
        spm.train(["text"], whole_words=[], vocab_size=100, tags=TAGS)
    with pytest.raises(InputError, match=r"tokenizer\.model: no such file"):
        spm.load(tmp_path / "tokenizer.model")
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\x0bnot a model")
    with pytest.raises(InputError, match="not a SentencePiece model"):
        spm.load(tmp_path)


@settings(max_examples=300, deadline=None)
@given(text)
def test_tokenizer_json_gives_the_same_ids_and_text(fast, tokenizer, text):
    ids = tokenizer.encode_control(text)
    assert fast.encode(text, add_special_tokens=False).ids == ids
    assert fast.decode(ids, skip_special_tokens=False) == tokenizer.decode(ids)


def test_tokenizer_json_agrees_on_long_text(fast, tokenizer):
    for line in sentences(200, seed=3, names=NAMES):
        assert fast.encode(line, add_special_tokens=False).ids == tokenizer.encode_control(line)
    mixed = "".join(f"{a}{b.lower()} {b}{a.lower()}," for a, b in zip(NAMES[:300], NAMES[300:600], strict=True))
    assert fast.encode(mixed, add_special_tokens=False).ids == tokenizer.encode_control(mixed)


def test_the_chat_template_is_kept_and_applied(tokenizer, tmp_path):
    chat = "{% for m in messages %}<search>{{ m['content'] }}</search>{% endfor %}{{ eos_token }}"
    spm.SentencePieceTokenizer(tokenizer._model, chat_template=chat).save(tmp_path)
    again = spm.load(tmp_path)
    assert again.chat_template == chat == (tmp_path / "chat_template.jinja").read_text()
    assert again.decode(ChatTemplate("Who? ", ()).prompt_ids(again, "me")) == "<search>Who? me</search></s>"
    assert spm.load(tmp_path / spm.MODEL_FILE).chat_template == chat
