"""Cached, batched, padded decoding against a twin that computes everything anew."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.sampling import engine as engines
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.engine import Writing
from tests import small
from tests.sampling import twin

BUDGET = 6
WHOLE = Draw()


@pytest.fixture(scope="module")
def run():
    return small.warmed()


@pytest.fixture(scope="module")
def engine(run):
    return small.engine(run.parts, slots=(2, 4), buckets=(1, 8, 24), chunk=3)


@pytest.fixture(scope="module")
def prompts(run) -> list[list[int]]:
    """Four prompts of different lengths."""
    scene = run.parts.scene
    asked = {question.hops: question for question in run.parts.task.train}
    ids = [scene.template.prompt_ids(scene.tokenizer, asked[hops].text) for hops in (1, 2, 3)]
    assert len(set(map(len, ids))) == 3
    return [*ids, ids[0][:-2]]


def keys(count: int, seed: int = 5):
    return jax.random.split(jax.random.key(seed), count)


class Written(NamedTuple):
    """One turn: tokens, log-probabilities, whether it stopped by itself."""

    tokens: list[int]
    logps: list[float]
    stopped: bool


def write(engine, run, slots, new, *, start=None, budget=BUDGET, key=None, draw=WHOLE) -> list[Written]:
    """Reads ``new`` behind what the slots hold, and writes a turn in each to its end."""
    start, key = start or [0] * len(new), keys(len(new)) if key is None else key
    draw = [draw] * len(new) if isinstance(draw, Draw) else draw
    budget = [budget] * len(new) if isinstance(budget, int) else budget
    engine.read(run.params, slots=slots, new=[ids[:-1] for ids in new], start=start)
    turns = [
        Writing(slot, at + len(ids) - 1, ids[-1], np.asarray(jax.random.key_data(own)), how, state=0, left=left)
        for slot, ids, at, own, how, left in zip(slots, new, start, key, draw, budget, strict=True)
    ]
    while under_way := [turn for turn in turns if not turn.finished]:
        engine.write(run.params, under_way)
    assert all(turn.step == len(turn.tokens) == len(turn.entropies) for turn in turns)
    return [Written(turn.tokens, turn.logps, turn.stopped) for turn in turns]


def expect(run, context, *, key, draw=WHOLE, budget=BUDGET):
    return twin.turn(
        run.params, run.parts.policy.model, context, tokenizer=run.parts.policy.tokenizer,
        stops=run.parts.task.env.stops[0], budget=budget, key=key, draw=draw,
    )  # fmt: skip


def same(found, expected):
    assert found[0] == expected[0]
    np.testing.assert_allclose(found[1], expected[1], atol=1e-5)
    assert found[2] == expected[2]


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_two_turns_equal_the_twin(engine, run, prompts, temperature):
    """The log-probability is that at the sampling temperature; the turn's last token is read with what follows it."""
    draw = Draw(temperature)
    turns = write(engine, run, [0, 1, 2, 3], prompts, draw=draw)
    read = run.parts.policy.tokenizer.encode(" The")
    new = [[turn.tokens[-1], *read] for turn in turns]
    start = [len(prompt) + len(turn.tokens) - 1 for prompt, turn in zip(prompts, turns, strict=True)]
    later = keys(4, seed=6)
    second = write(engine, run, [0, 1, 2, 3], new, start=start, key=later, draw=draw)
    for s, prompt in enumerate(prompts):
        same(turns[s], expect(run, prompt, key=keys(4)[s], draw=draw))
        context = [*prompt, *turns[s].tokens, *read]
        same(second[s], expect(run, context, key=later[s], draw=draw))


def test_every_slot_draws_in_its_own_way(engine, run, prompts):
    """Whole, at another temperature, cut, and the most likely token, side by side."""
    own = [Draw(), Draw(0.6), Draw(1.5, top_k=20, top_p=0.8, min_p=0.1), Draw(0.0)]
    written = write(engine, run, [0, 1, 2, 3], [prompts[0]] * 4, draw=own)
    for s, draw in enumerate(own):
        same(written[s], expect(run, prompts[0], key=keys(4)[s], draw=draw))


def test_turns_of_every_kind_occur(engine, run, prompts):
    """The test above means something: some turns stop at a tag, some run out of tokens, and some take two chunks."""
    written = write(engine, run, [0, 1, 2, 3], prompts, budget=[6, 6, 2, 6])
    assert {turn.stopped for turn in written} == {True, False}
    assert max(len(turn.tokens) for turn in written) > engine.sampling.chunk > min(len(turn.tokens) for turn in written)


@pytest.mark.parametrize("chunk", [1, 2, 5, 6, 64])
def test_the_size_of_a_chunk_does_not_matter(engine, run, prompts, chunk):
    other = small.engine(run.parts, slots=(2, 4), buckets=(1, 8, 24), chunk=chunk)
    here, there = (write(which, run, [0, 1, 2], prompts[:3]) for which in (engine, other))
    for s in range(3):
        same(here[s], there[s])


@pytest.mark.parametrize("slots", [[3], [1, 3], [3, 0, 2], [2, 0, 3, 1]])
def test_neither_the_slot_nor_its_neighbours_matter(engine, run, prompts, slots):
    """Any subset of the slots, in any order, padded to any of the sizes."""
    every = write(engine, run, [0, 1, 2, 3], prompts)
    some = write(engine, run, slots, prompts[: len(slots)], key=keys(4)[: len(slots)])
    for s in range(len(slots)):
        same(some[s], every[s])


def test_a_turn_joins_others_that_are_half_written(engine, run, prompts):
    """Slots are refilled while their neighbours go on."""
    data = np.asarray(jax.random.key_data(keys(2)))
    engine.read(run.params, slots=[0], new=[prompts[0][:-1]], start=[0])
    first = Writing(0, len(prompts[0]) - 1, prompts[0][-1], data[0], WHOLE, state=0, left=BUDGET)
    engine.write(run.params, [first])
    engine.read(run.params, slots=[3], new=[prompts[1][:-1]], start=[0])
    second = Writing(3, len(prompts[1]) - 1, prompts[1][-1], data[1], WHOLE, state=0, left=BUDGET)
    while under_way := [turn for turn in (second, first) if not turn.finished]:
        engine.write(run.params, under_way)
    for turn, prompt, key in ((first, prompts[0], keys(2)[0]), (second, prompts[1], keys(2)[1])):
        same((turn.tokens, turn.logps, turn.stopped), expect(run, prompt, key=key))


@pytest.mark.parametrize(("slots", "left"), [([1, 2], 3), ([2, 0, 3], 1), ([0, 3], 2)])
def test_a_call_leaves_other_slots_alone(engine, run, prompts, slots, left):
    engine.read(run.params, slots=[0, 1, 2, 3], new=prompts, start=[0] * 4)
    write(engine, run, slots, [[7, 8, 9]] * len(slots), start=[3] * len(slots))
    (last,) = write(
        engine, run, [left], [prompts[left][-1:]], start=[len(prompts[left]) - 1], key=keys(4)[left : left + 1]
    )
    same(last, expect(run, prompts[left], key=keys(4)[left]))


def test_buckets_do_not_matter(engine, run, prompts):
    """A prompt read at once, or in two parts of other padding."""
    (whole,) = write(engine, run, [0], [prompts[0]])
    engine.read(run.params, slots=[1], new=[prompts[0][:2]], start=[0])
    (parts,) = write(engine, run, [1], [prompts[0][2:]], start=[2])
    same(parts, whole)


def test_a_fork_equals_a_fresh_slot(engine, run, prompts):
    """Copied and cut back to the prompt, after the source has gone on."""
    engine.read(run.params, slots=[2], new=[[*prompts[1], 5, 6, 7]], start=[0])
    engine.copy(source=[2, 2], target=[0, 3])
    forked = write(engine, run, [0, 3], [prompts[1][-1:]] * 2, start=[len(prompts[1]) - 1] * 2)
    for s in range(2):
        same(forked[s], expect(run, prompts[1], key=keys(2)[s]))


def test_a_copy_onto_the_sources_takes_all_at_once(engine, run, prompts):
    """Prompts lie in the slots that the first rollouts take."""
    engine.read(run.params, slots=[0, 1], new=prompts[:2], start=[0, 0])
    engine.copy(source=[0, 0, 1, 1], target=[0, 1, 2, 3])
    held = [prompts[0], prompts[0], prompts[1], prompts[1]]
    written = write(engine, run, [0, 1, 2, 3], [ids[-1:] for ids in held], start=[len(ids) - 1 for ids in held])
    for s in range(4):
        same(written[s], expect(run, held[s], key=keys(4)[s]))


@pytest.mark.parametrize("budget", [1, 2])
def test_the_budget_bounds_the_turn(engine, run, prompts, budget):
    (turn,) = write(engine, run, [1], prompts[:1], budget=budget)
    assert len(turn.tokens) == budget
    assert not turn.stopped


def test_a_context_longer_than_any_bucket_and_filled_to_its_end_is_still_right(engine, run, prompts):
    """Read in several calls of the largest bucket."""
    limit = engine.sampling.max_context
    long = (prompts[0] * 20)[: limit - 3]
    assert len(long) > 2 * max(engine.sampling.buckets)
    (last,) = write(engine, run, [3], [long], budget=3)
    same(last, expect(run, long, key=keys(1)[0], budget=3))


def test_entropies_are_those_of_what_was_drawn_from(engine, run, prompts):
    draw = Draw(4.0, top_k=5)
    engine.read(run.params, slots=[0], new=[prompts[0][:-1]], start=[0])
    key = np.asarray(jax.random.key_data(keys(1)))[0]
    turn = Writing(0, len(prompts[0]) - 1, prompts[0][-1], key, draw, state=0, left=1)
    engine.write(run.params, [turn])
    logp = twin.cut(twin.next_logps(run.params, run.parts.policy.model, prompts[0], temperature=4.0), draw)
    kept = logp[np.isfinite(logp)]
    assert len(kept) == 5
    np.testing.assert_allclose(turn.entropies, [-np.sum(np.exp(kept) * kept)], rtol=1e-3)


def test_few_programs_are_compiled(run, prompts):
    """One for a size of calls and a bucket that is read, one for a size that is written, one for one that is copied."""
    own = small.engine(run.parts, slots=(2, 4), buckets=(1, 8, 24), max_context=95)
    before = {call: call._cache_size() for call in (engines._read, engines._write, engines._copy)}
    for _ in range(2):
        for slots in ([0], [3, 1], [0, 1, 2], [3, 2, 1, 0]):
            write(own, run, slots, prompts[: len(slots)])
            own.copy(source=slots, target=slots)
    grown = {call: call._cache_size() - count for call, count in before.items()}
    buckets = len({next(b for b in (1, 8, 24) if b >= len(prompt) - 1) for prompt in prompts})
    assert grown[engines._write] == grown[engines._copy] == 2
    assert grown[engines._read] <= 2 * buckets


def test_what_does_not_fit_is_refused(engine, run):
    with pytest.raises(InputError, match=r"slot 3: 97 tokens in all exceed .*max_context 96"):
        engine.read(run.params, slots=[3], new=[[1] * 7], start=[90])
    turn = Writing(2, 90, 1, np.zeros(2, np.uint32), WHOLE, state=0, left=6)
    with pytest.raises(InputError, match=r"slot 2: 97 tokens in all exceed .*max_context 96"):
        engine.write(run.params, [turn])


def test_a_context_beyond_the_models_positions_is_refused(run):
    with pytest.raises(InputError, match="max_context is 200, but the model has 160 positions"):
        small.engine(run.parts, max_context=200)
