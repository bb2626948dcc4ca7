from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.tokenization import spm
from rlsearch.tokenization.tags import TAGS, escape
from rlsearch.tokenization.template import (
    SEARCH_R1_INSTRUCTION,
    AnswerTemplate,
    ChatTemplate,
    PlainTemplate,
    render_chat,
)
from tests.tokenization.small_bpe import CHAT, small_bpe


@pytest.fixture(scope="module")
def pieces():
    return spm.train(["Question: who leads Karlon?"], whole_words=["Karlon"], vocab_size=400, tags=TAGS)


def test_plain_prompt_is_its_three_parts(pieces):
    ids = PlainTemplate(before="Question: ", after="\n<think>").prompt_ids(pieces, "Karlon <answer>?")
    assert pieces.decode(ids) == "Question: Karlon &lt;answer>?\n<think>"
    assert pieces.encode(" Karlon")[0] in ids
    assert ids[-1] == pieces.encode_control("<think>")[0]
    assert pieces.encode_control("<answer>")[0] not in ids


def test_an_answer_is_what_its_opening_leaves(pieces):
    """The space belongs to the answer, as the policy writes it; tags of the answer itself are text."""
    template = AnswerTemplate(before="<answer> ", after="</answer>")
    opening, answer = template.opening_ids(pieces), template.answer_ids(pieces, "Karlon")
    assert opening == pieces.encode_control("<answer>")
    assert answer == [*pieces.encode(" Karlon"), *pieces.encode_control("</answer>")]
    assert pieces.decode(template.answer_ids(pieces, "<answer>")) == " &lt;answer></answer>"
    assert AnswerTemplate(before="", after="").answer_ids(pieces, "Karlon") == pieces.encode("Karlon")
    assert AnswerTemplate(before="", after="").opening_ids(pieces) == []


def test_chat_prompt_reads_as_the_template_renders():
    tokenizer = small_bpe()
    ids = ChatTemplate(instruction="Answer: ", examples=()).prompt_ids(tokenizer, "who?")
    assert tokenizer.decode(ids) == "<|start|>user\nAnswer: who?<|end|>\n<|start|>assistant\n"
    assert ids == tokenizer.encode_control("<|start|>user\nAnswer: who?<|end|>\n<|start|>assistant\n")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=5), st.sampled_from(["<|end|>", "<|start|>", "{{ 1 }}", *TAGS]))).map("".join)
)
def test_a_question_cannot_end_its_message(question):
    tokenizer = small_bpe()
    ids = ChatTemplate(instruction=SEARCH_R1_INSTRUCTION, examples=()).prompt_ids(tokenizer, question)
    start, end = (tokenizer.encode_control(special)[0] for special in ("<|start|>", "<|end|>"))
    assert (ids.count(start), ids.count(end)) == (2, 1)
    assert escape(question) in tokenizer.decode(ids)


def test_instruction_names_every_tag_and_the_sample_answer():
    assert all(tag in SEARCH_R1_INSTRUCTION for tag in TAGS)
    assert "<answer> Beijing </answer>" in SEARCH_R1_INSTRUCTION


def test_bad_templates_are_named(pieces):
    with pytest.raises(InputError, match="no chat template"):
        ChatTemplate(instruction="", examples=()).prompt_ids(pieces, "who?")
    with pytest.raises(InputError, match="needs a system message"):
        render_chat("{{ raise_exception('needs a system message') }}", [], {})
    with pytest.raises(InputError, match="TemplateSyntaxError"):
        render_chat("{% for %}", [], {})
    tokenizer = small_bpe()
    tokenizer.chat_template = CHAT + CHAT
    with pytest.raises(InputError, match="2 times"):
        ChatTemplate(instruction="", examples=()).prompt_ids(tokenizer, "who?")


def test_examples_are_earlier_exchanges_with_the_same_instruction():
    tokenizer = small_bpe()
    shown = ("why?", "<answer> so </answer>")
    ids = ChatTemplate(instruction="Answer: ", examples=(shown,)).prompt_ids(tokenizer, "who?")
    alone = ChatTemplate(instruction="Answer: ", examples=()).prompt_ids(tokenizer, "who?")
    text = tokenizer.decode(ids)
    assert text.index("Answer: why?") < text.index("<answer> so </answer>") < text.index("Answer: who?")
    assert ids[-5:] == alone[-5:]  # both end where the assistant's turn begins
