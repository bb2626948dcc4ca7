from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlsearch.tokenization import spm
from rlsearch.tokenization.tags import TAGS, escape
from tests.tokenization.names import names, sentences
from tests.tokenization.small_bpe import small_bpe

FORBIDDEN = [*TAGS, "</s>", "<pad>", "<unk>", "<|start|>", "<|end|>"]
TAG = re.compile("|".join(map(re.escape, TAGS)))

hostile = st.lists(st.one_of(st.text(max_size=5), st.sampled_from([*FORBIDDEN, "<", "</", "<sea", "rch>", "&lt;"])))
hostile = hostile.map("".join)


@pytest.fixture(scope="module", params=["spm", "byte_bpe"])
def tokenizer(request):
    if request.param == "byte_bpe":
        return small_bpe()
    return spm.train(sentences(100, seed=0, names=names(20, seed=0)), whole_words=[], vocab_size=400, tags=TAGS)


@settings(max_examples=300, deadline=None)
@given(hostile)
def test_escaped_text_gives_no_control_id_and_decodes_to_no_tag(tokenizer, text):
    ids = tokenizer.encode(escape(text))
    specials = [tokenizer.encode_control(special) for special in FORBIDDEN]
    control = {special[0] for special in specials if len(special) == 1}
    assert control
    assert not set(ids) & control
    assert not TAG.search(tokenizer.decode(ids))


@settings(max_examples=300)
@given(hostile, hostile)
@example("<sea", "rch>")
@example("<", "/answer>")
def test_escaped_texts_joined_hold_no_tag(first, second):
    assert not TAG.search(escape(first) + escape(second))


@given(hostile)
def test_escaping_twice_changes_nothing_and_little_else_changes(text):
    once = escape(text)
    assert escape(once) == once
    assert once.replace("&lt;", "<") == text.replace("&lt;", "<")


def test_text_without_tags_stays():
    text = "a < b, <b>bold</b>, </s>, <searching>, < search> and <Search>"
    assert escape(text) == text
    assert escape("see <search>x</search>") == "see &lt;search>x&lt;/search>"
