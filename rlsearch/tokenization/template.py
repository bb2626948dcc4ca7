"""From a question to the ids of a prompt, with the program's text and the question's kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import jinja2
import jinja2.sandbox

from rlsearch.errors import InputError
from rlsearch.tokenization.tags import escape
from rlsearch.tokenization.types import Tokenizer

# What Search-R1's user message asks for (Jin et al., 2025, table 1), in other words; the tags and their order are its.
SEARCH_R1_INSTRUCTION = (
    "Answer the question below. Whenever you receive new information, first reason about it inside <think> and "
    "</think>. If your reasoning shows that you lack some knowledge, you can query a search engine with "
    "<search> query </search>; it returns its best results between <information> and </information>. You may search "
    "as often as you like. Once you need no more outside knowledge, give the answer itself inside <answer> and "
    "</answer>, with no further explanation, for example <answer> Beijing </answer>. Question: "
)

_QUESTION = "\ue000question\ue000"  # private-use characters: stands where the question goes while Jinja renders


class Template(Protocol):
    """Renders a question to the ids that the policy continues."""

    def prompt_ids(self, tokenizer: Tokenizer, question: str) -> list[int]: ...


@dataclass(frozen=True)
class PlainTemplate:
    """``before``, the question, ``after``; tags and special tokens are recognised in the two, not in the question.

    A space that ends ``before`` is encoded with the question, since pieces begin with their space.
    """

    before: str
    after: str

    def prompt_ids(self, tokenizer: Tokenizer, question: str) -> list[int]:
        """Ids of the prompt for a question that nobody vouches for."""
        return _join(tokenizer, self.before, question, self.after)


@dataclass(frozen=True)
class AnswerTemplate:
    """How an answer stands after a prefix: ``before``, the answer, ``after``.

    Tags are recognised in the two, not in the answer. A space that ends ``before`` is encoded with the answer.
    """

    before: str
    after: str

    def opening_ids(self, tokenizer: Tokenizer) -> list[int]:
        """Ids of what stands before every answer."""
        return tokenizer.encode_control(self.before.rstrip(" "))

    def answer_ids(self, tokenizer: Tokenizer, answer: str) -> list[int]:
        """Ids of the answer and what closes it; the two concatenated are ids of the whole."""
        return _join(tokenizer, self.before, answer, self.after)[len(self.opening_ids(tokenizer)) :]


@dataclass(frozen=True)
class ChatTemplate:
    """One user message, ``instruction`` and the question, through the tokenizer's own chat template.

    ``examples`` are earlier exchanges, each a question and the whole of what an assistant wrote and was shown; they
    stand before the message and are trusted text.
    """

    instruction: str
    examples: tuple[tuple[str, str], ...]

    def prompt_ids(self, tokenizer: Tokenizer, question: str) -> list[int]:
        """Ids of the prompt up to where the assistant's answer begins.

        Raises:
          InputError: the tokenizer has no chat template, or its template fails or does not show the message once.
        """
        source = getattr(tokenizer, "chat_template", None)
        if source is None:
            raise InputError("the tokenizer has no chat template; use the plain template, or give it one")
        messages = []
        for asked, written in (*self.examples, (_QUESTION, "")):
            messages.append({"role": "user", "content": self.instruction + asked})
            messages.append({"role": "assistant", "content": written})
        messages.pop()  # the assistant's turn is the policy's
        rendered = render_chat(source, messages, tokenizer.specials)
        if rendered.count(_QUESTION) != 1:
            raise InputError(
                f"the chat template shows the user's message {rendered.count(_QUESTION)} times, needs once"
            )
        return _join(tokenizer, *_around(rendered, question))


def render_chat(source: str, messages: Sequence[dict[str, str]], specials: dict[str, str]) -> str:
    """Renders a chat template as transformers does, up to the assistant's turn.

    Functions of the clock are not offered to the template, so that a prompt does not depend on the day.

    Raises:
      InputError: the template cannot be parsed or refuses the messages.
    """

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    try:
        template = environment.from_string(source)
        return template.render(messages=messages, add_generation_prompt=True, **specials)
    except jinja2.TemplateError as error:
        raise InputError(f"chat template: {type(error).__name__}: {error}; messages were {messages}") from error


def _around(rendered: str, question: str) -> tuple[str, str, str]:
    before, after = rendered.split(_QUESTION)
    return before, question, after


def _join(tokenizer: Tokenizer, before: str, question: str, after: str) -> list[int]:
    body = before.rstrip(" ")
    spaces = before[len(body) :]
    inside = tokenizer.encode(spaces + escape(question))
    return [*tokenizer.encode_control(body), *inside, *tokenizer.encode_control(after)]
