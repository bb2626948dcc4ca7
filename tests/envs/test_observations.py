from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.envs import observations
from rlsearch.envs.types import Piece
from rlsearch.errors import InputError
from rlsearch.search.types import Passage
from rlsearch.tokenization.tags import TAGS
from tests.envs.fakes import PASSAGES, ByteTokenizer, hits

TOKENIZER = ByteTokenizer()
CLOSE = 256 + TAGS.index("</information>")
styles = st.sampled_from(observations.STYLES)
texts = st.lists(st.sampled_from([*TAGS, "<", "sea", "rch>", "é", "漢", " ", "word", "\n"]), max_size=12).map("".join)
passages = st.builds(Passage, id=st.just("p"), title=texts, text=texts)


def joined(pieces) -> str:
    return "".join(piece.text for piece in pieces)


def test_search_r1_style_byte_for_byte():
    assert joined(observations.render(hits(*PASSAGES[:2]), style="search_r1")) == (
        "\n\n<information>"
        'Doc 1(Title: "Niels Lyhne") Niels Lyhne is a novel by J. P. Jacobsen.\n'
        'Doc 2(Title: "J. P. Jacobsen") Jacobsen was born in Thisted, Denmark.'
        "</information>\n\n"
    )


def test_compact_style_holds_the_texts_alone():
    assert joined(observations.render(hits(*PASSAGES[:2]), style="compact")) == (
        "<information> Niels Lyhne is a novel by J. P. Jacobsen. Jacobsen was born in Thisted, Denmark.</information>"
    )


@pytest.mark.parametrize("style", observations.STYLES)
def test_no_hits_make_an_empty_block(style):
    assert joined(observations.render(hits(), style=style)).strip() == "<information></information>"


@given(st.lists(passages, max_size=3), styles)
def test_passage_text_never_reads_as_a_tag(found, style):
    pieces = observations.render(hits(*found), style=style)
    text = joined(pieces)
    assert {tag: text.count(tag) for tag in TAGS if tag in text} == {"<information>": 1, "</information>": 1}
    assert text.strip().startswith("<information>") and text.strip().endswith("</information>")
    assert [piece.trusted for piece in pieces] == [True, False, True]


def test_a_sentence_about_the_tags_follows_an_invalid_turn():
    text = joined(observations.invalid(style="search_r1"))
    assert all(tag in text for tag in ("<search>", "</search>", "<answer>", "</answer>"))
    assert joined(observations.invalid(style="compact")) == "<information> invalid</information>"


@given(st.lists(passages, max_size=3), styles, st.integers(0, 120))
def test_encoded_observation_keeps_its_limit_and_its_tags(found, style, room):
    pieces = observations.render(hits(*found), style=style)
    tags = sum(len(TOKENIZER.encode_control(piece.text)) for piece in pieces if piece.trusted)
    encoded = observations.encode(pieces, tokenizer=TOKENIZER, limit=tags + room)
    assert len(encoded.ids) <= tags + room
    assert [i for i in encoded.ids if i >= 256] == [256 + TAGS.index("<information>"), CLOSE]
    text = TOKENIZER.decode(encoded.ids)
    assert text.startswith(pieces[0].text) and text.endswith(pieces[-1].text) and "\ufffd" not in text
    inside = text[len(pieces[0].text) : len(text) - len(pieces[-1].text)]
    if encoded.cut == 0:
        assert inside == pieces[1].text
    else:
        assert pieces[1].text.startswith(inside.removesuffix(observations.TRUNCATED))
        assert encoded.cut == len(pieces[1].text.encode()) - len(inside.removesuffix(observations.TRUNCATED).encode())


def test_the_long_observation_keeps_its_closing_tag_and_the_short_one_its_text():
    """Two observations under one limit of 500 tokens: neither is damaged by the other."""
    long = observations.render(hits(Passage(id="a", title="", text="x" * 600)), style="compact")
    short = observations.render(hits(Passage(id="b", title="", text="y" * 47)), style="compact")
    encoded = observations.encode(long, tokenizer=TOKENIZER, limit=500)
    assert TOKENIZER.decode(encoded.ids) == "<information> " + "x" * 493 + " ...</information>"
    assert encoded == observations.Encoded(encoded.ids, cut=601 - 494)
    assert TOKENIZER.decode(observations.encode(short, tokenizer=TOKENIZER, limit=500).ids) == joined(short)


def test_only_untrusted_pieces_are_cut_and_later_ones_give_way_first():
    pieces = (Piece("<answer>", True), Piece("a" * 10, False), Piece("|", True), Piece("b" * 10, False))
    encoded = observations.encode(pieces, tokenizer=TOKENIZER, limit=18)
    assert TOKENIZER.decode(encoded.ids) == "<answer>aaaaaaaaaa|bb ..."
    assert encoded.cut == 8
    encoded = observations.encode(pieces, tokenizer=TOKENIZER, limit=10)
    assert TOKENIZER.decode(encoded.ids) == "<answer>aaaa ...|"
    assert encoded.cut == 16


def test_a_character_is_not_cut_in_two():
    pieces = (Piece("漢字漢字", False),)
    encoded = observations.encode(pieces, tokenizer=TOKENIZER, limit=9)
    assert TOKENIZER.decode(encoded.ids) == "漢 ..."
    assert encoded.cut == 9
    followed = observations.encode((*pieces, Piece("b", False)), tokenizer=TOKENIZER, limit=9)
    assert followed == observations.Encoded(encoded.ids, cut=10)  # the room left over is not given to later text


def test_a_limit_below_the_tags_is_refused():
    pieces = observations.render(hits(*PASSAGES), style="search_r1")
    with pytest.raises(InputError, match="limit of 5 tokens: the tags alone take 6"):
        observations.encode(pieces, tokenizer=TOKENIZER, limit=5)
