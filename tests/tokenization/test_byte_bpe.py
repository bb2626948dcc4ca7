from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.tokenization import byte_bpe_files, loading, spm
from rlsearch.tokenization.byte_bpe import byte_alphabet
from rlsearch.tokenization.tags import TAGS
from tests.tokenization.small_bpe import CHAT, scored_bpe, scored_metadata, small_bpe

SPECIALS = ["<|start|>", "<|end|>", "<search>"]
TOKENIZER = small_bpe()

text = st.lists(st.one_of(st.text(), st.sampled_from([*TAGS, *SPECIALS, "<|", " "]))).map("".join)


@settings(max_examples=300, deadline=None)
@given(text)
def test_plain_text_round_trips_without_special_ids(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert not set(ids) & {TOKENIZER.encode_control(special)[0] for special in SPECIALS}
    assert TOKENIZER.decode(TOKENIZER.encode_control(text)) == text
    assert b"".join(TOKENIZER.token_bytes()[i] for i in ids) == text.encode()


def test_special_tokens_are_one_id_each_in_trusted_text():
    ids = TOKENIZER.encode_control("".join(SPECIALS))
    assert len(ids) == 3
    assert TOKENIZER.decode(ids) == "".join(SPECIALS)


def test_byte_alphabet_covers_every_byte_once():
    assert sorted(byte_alphabet().values()) == list(range(256))


def test_save_then_load_keeps_everything(tmp_path):
    TOKENIZER.save(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": list(TOKENIZER.eos_ids)}))
    again = byte_bpe_files.load(tmp_path)
    line = "<|start|>user\n<search> héllo \U0001f600   12"
    assert again.encode_control(line) == TOKENIZER.encode_control(line)
    assert (again.pad_id, again.eos_ids) == (TOKENIZER.pad_id, TOKENIZER.eos_ids)
    assert again.chat_template == CHAT == (tmp_path / "chat_template.jinja").read_text()
    assert again.specials == {"eos_token": "<|end|>", "pad_token": "<|end|>"}


def test_an_id_of_zero_is_an_id(tmp_path):
    TOKENIZER.save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    first = TOKENIZER._control.id_to_token(0)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "pad_token": first, "eos_token": first}))
    again = byte_bpe_files.load(tmp_path)
    assert (again.pad_id, again.eos_ids) == (0, (0,))


def _gguf() -> dict:
    document = TOKENIZER._document
    tokens = {**document["model"]["vocab"], **{t["content"]: t["id"] for t in document["added_tokens"]}}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": sorted(tokens, key=tokens.get),
        "tokenizer.ggml.token_type": [3 if t in SPECIALS else 1 for t in sorted(tokens, key=tokens.get)],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in document["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": tokens["<|end|>"],
        "tokenizer.ggml.padding_token_id": tokens["<|end|>"],
        "tokenizer.chat_template": CHAT,
    }


def test_gguf_metadata_gives_the_same_ids_with_digits_apart():
    rebuilt = byte_bpe_files.from_gguf(_gguf(), where="model.gguf")
    line = "<|start|>the mother of Karlon's \n\n friend é <search>"
    assert rebuilt.encode_control(line) == TOKENIZER.encode_control(line)
    assert [rebuilt.decode([i]) for i in rebuilt.encode("1234")] == ["1", "2", "3", "4"]
    assert rebuilt.chat_template == CHAT


def test_bad_input_is_named(tmp_path):
    with pytest.raises(InputError, match=r"tokenizer\.json: no such file"):
        byte_bpe_files.load(tmp_path)
    TOKENIZER.save(tmp_path)
    whole = (tmp_path / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"tokenizer\.json: not JSON"):
        byte_bpe_files.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text(whole.replace('"type": "BPE"', '"type": "WordPiece"'))
    with pytest.raises(InputError, match="WordPiece"):
        byte_bpe_files.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text(whole)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')
    assert byte_bpe_files.load(tmp_path).pad_id == TOKENIZER.eos_ids[0]
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<|end|>"}')
    with pytest.raises(InputError, match="eos_token is None"):
        byte_bpe_files.load(tmp_path)
    fields = _gguf()
    del fields["tokenizer.ggml.merges"]
    with pytest.raises(InputError, match=r"model\.gguf: no field 'tokenizer\.ggml\.merges'"):
        byte_bpe_files.from_gguf(fields, where="model.gguf")
    with pytest.raises(InputError, match="'odd'"):
        byte_bpe_files.from_gguf({**_gguf(), "tokenizer.ggml.pre": "odd"}, where="model.gguf")


@pytest.mark.parametrize("ends", [[5, 0], 0, None])
def test_the_tokenizers_own_end_comes_first(tmp_path, ends):
    TOKENIZER.save(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    rest = ends if isinstance(ends, list) else [0] if ends == 0 else []
    assert byte_bpe_files.load(tmp_path).eos_ids == (TOKENIZER.eos_ids[0], *rest)


GEMMA = scored_bpe()


def test_scored_pieces_are_merged_best_first():
    """ "ab" scores above "\u2581a", so that " abc" is cut before it is put together; "zé" has a byte and a piece."""
    names = scored_metadata()["tokenizer.ggml.tokens"]
    assert [names[i] for i in GEMMA.encode(" abc")] == ["\u2581abc"]
    assert [names[i] for i in GEMMA.encode(" ab")] == ["\u2581", "ab"]
    assert [names[i] for i in GEMMA.encode("zé  a")] == ["<0x7A>", "é", "\u2581\u2581", "a"]
    assert GEMMA.encode_control("<start>")[0] == 3 and 3 not in GEMMA.encode("<start>")


@settings(max_examples=100)
@given(st.lists(st.one_of(st.text().filter(lambda t: "\u2581" not in t), st.sampled_from(SPECIALS))).map("".join))
def test_text_with_bytes_of_their_own_round_trips(text):
    ids = GEMMA.encode(text)
    assert GEMMA.decode(ids) == text and not set(ids) & {0, 1, 2, 3}


def test_gemma_s_directory_is_read_from_tokenizer_json(tmp_path):
    GEMMA.save(tmp_path)
    (tmp_path / spm.MODEL_FILE).write_bytes(b"a BPE that SentencePiece runs")
    again = loading.load(tmp_path)
    assert again.encode_control("<start> abc é z") == GEMMA.encode_control("<start> abc é z")
    assert (again.chat_template, again.token_bytes()) == (CHAT, GEMMA.token_bytes())
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    del document["model"]["vocab"]["<0x07>"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="it misses <0x07>"):
        loading.load(tmp_path)
