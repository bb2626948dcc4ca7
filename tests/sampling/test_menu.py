"""Menus: exactly the strings on offer can be written, each in every spelling, whatever the vocabulary."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.engine import Writing
from rlsearch.sampling.menu import DONE, NONE, Spelling
from tests import small
from tests.sampling import twin

END = 0
words = st.lists(st.text("ab\u00e9", min_size=1, max_size=5), min_size=1, max_size=4, unique=True)
pieces = st.lists(st.binary(min_size=2, max_size=3), max_size=6)
LETTERS = [b"", b"a", b"b", "\u00e9".encode()[:1], "\u00e9".encode()[1:]]


def written(menu) -> set[tuple[int, ...]]:
    """Every sequence of tokens that a menu lets through."""
    found, waiting = set(), [((), 0)]
    while waiting:
        tokens, state = waiting.pop()
        choices = [(t, s) for t, s in zip(menu.allowed[state], menu.after[state], strict=True) if t != NONE]
        assert choices, f"nothing may follow {tokens}"
        for token, after in choices:
            if after == DONE:
                found.add((*tokens, int(token)))
            else:
                waiting.append(((*tokens, int(token)), int(after)))
    return found


def spelled(text: bytes, vocabulary: list[bytes]) -> set[tuple[int, ...]]:
    """The twin: every way to spell a text, by trying all tokens."""
    if not text:
        return {()}
    return {
        (token, *rest)
        for token, data in enumerate(vocabulary)
        if data and token != END and text.startswith(data)
        for rest in spelled(text[len(data) :], vocabulary)
    }


@given(words, pieces)
def test_a_menu_lets_through_exactly_the_spellings_of_its_strings(strings, more):
    vocabulary = [*LETTERS, *more]
    menu = Spelling(vocabulary, [END]).menu(strings)
    expected = set()
    for string in strings:
        longer = any(other != string and other.startswith(string) for other in strings)
        expected |= {(*ids, END) if longer else ids for ids in spelled(string.encode(), vocabulary)}
    assert written(menu) == expected


@given(words, pieces)
def test_a_string_without_a_spelling_is_refused(strings, more):
    vocabulary = [b"", *more]
    spells = [bool(spelled(string.encode(), vocabulary)) for string in strings]
    assume(more and not all(spells))
    with pytest.raises(InputError, match="the vocabulary cannot spell"):
        Spelling(vocabulary, [END]).menu(strings)


@pytest.mark.parametrize(
    ("strings", "said"),
    [([], "needs strings"), (["a", ""], "none of them empty"), (["a", "b", "a"], "'a' stands twice in a menu")],
)
def test_what_is_no_menu_is_refused(strings, said):
    with pytest.raises(InputError, match=said):
        Spelling(LETTERS, [END]).menu(strings)


@pytest.fixture(scope="module")
def run():
    return small.warmed()


@pytest.fixture(scope="module")
def offered(run):
    """Three strings, two of which begin alike and one of which goes on where another ends."""
    first, second = (question.answers[0] for question in run.parts.task.train[:2])
    strings = (f"<answer> {first}", f"<answer> {first}</answer>", f"<search> {second}</search>")
    tokenizer = run.parts.policy.tokenizer
    return strings, Spelling(tokenizer.token_bytes(), tokenizer.eos_ids).menu(strings)


def choose(run, engine, menu, slots, *, draw=None, seed=0):
    """Turns that choose, one in each of ``slots``, after the same prompt."""
    prompt = run.parts.scene.template.prompt_ids(run.parts.policy.tokenizer, run.parts.task.train[0].text)
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(seed), 4)))
    engine.read(run.params, slots=slots, new=[prompt[:-1]] * len(slots), start=[0] * len(slots))
    turns = [
        Writing(slot, len(prompt) - 1, prompt[-1], keys[slot], draw or Draw(1.5), state=0, left=40, menu=menu)
        for slot in slots
    ]
    return prompt, turns


def finish(run, engine, turns):
    while under_way := [turn for turn in turns if not turn.finished]:
        engine.write(run.params, under_way)
    return turns


def test_what_is_chosen_is_on_the_menu_and_its_log_probability_is_that_of_the_choice(run, offered):
    engine, (strings, menu) = small.engine(run.parts, slots=(4,)), offered
    tokenizer, chosen = run.parts.policy.tokenizer, set()
    for seed in range(6):
        prompt, turns = choose(run, engine, menu, [0, 1, 2, 3], seed=seed)
        for turn in finish(run, engine, turns):
            ids = [token for token in turn.tokens if token not in tokenizer.eos_ids]
            chosen.add(tokenizer.decode(ids))
            assert turn.stopped
            assert tokenizer.decode(ids) in strings
    assert len(chosen) > 1
    state = 0
    for n, token in enumerate(turn.tokens):
        logp = twin.next_logps(run.params, run.parts.policy.model, [*prompt, *turn.tokens[:n]], temperature=1.5)
        row = [t for t in menu.allowed[state] if t != NONE]
        np.testing.assert_allclose(turn.logps[n], logp[token] - np.log(np.exp(logp[row]).sum()), atol=1e-5)
        state = int(menu.after[state, list(menu.allowed[state]).index(token)])
    assert state == DONE


def test_a_greedy_choice_is_the_likeliest_step_by_step(run, offered):
    engine, (_, menu) = small.engine(run.parts, slots=(4,)), offered
    prompt, turns = choose(run, engine, menu, [2], draw=Draw(temperature=0.0))
    (turn,) = finish(run, engine, turns)
    state, context = 0, list(prompt)
    for token in turn.tokens:
        logp = twin.next_logps(run.params, run.parts.policy.model, context, temperature=1.0)
        row = [int(t) for t in menu.allowed[state] if t != NONE]
        assert token == max(row, key=lambda t: logp[t])
        state = int(menu.after[state, list(menu.allowed[state]).index(token)])
        context.append(token)


def test_neighbours_that_choose_change_nothing_for_those_that_write_freely(run, offered):
    engine, (_, menu) = small.engine(run.parts, slots=(4,)), offered
    _, free = choose(run, engine, None, [0, 1])
    alone = [(turn.tokens, turn.stopped) for turn in finish(run, engine, free)]
    _, free = choose(run, engine, None, [0, 1])
    _, bound = choose(run, engine, menu, [2, 3])
    finish(run, engine, [*bound, *free])
    assert [(turn.tokens, turn.stopped) for turn in free] == alone
