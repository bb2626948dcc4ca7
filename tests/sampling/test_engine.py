"""Cached, batched, padded decoding against a twin that computes everything anew."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.sampling.draw import Draw
from tests import small
from tests.sampling import twin

BUDGET = 6
WHOLE = Draw()


@pytest.fixture(scope="module")
def run():
    return small.warmed()


@pytest.fixture(scope="module")
def engine(run):
    return small.engine(run.parts, slots=(2, 4), buckets=(1, 8, 24))


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


def write(engine, run, slots, new, **changes):
    call = {"start": [0] * len(new), "budget": [BUDGET] * len(new), "key": keys(len(new)), "draw": WHOLE}
    return engine.write(run.params, slots=slots, new=new, **(call | changes))


def row(written, index: int):
    """Tokens, log-probabilities and whether it stopped, of one slot."""
    count = written.count[index]
    return written.tokens[index, :count].tolist(), written.logps[index, :count], bool(written.stopped[index])


def expect(run, context, *, key, draw=WHOLE, budget=BUDGET):
    return twin.turn(
        run.params, run.parts.policy.model, context, tokenizer=run.parts.policy.tokenizer,
        stops=run.parts.task.env.stops[0], budget=budget, key=key, draw=draw,
    )  # fmt: skip


def same(found, expected):
    assert found[0] == expected[0]
    np.testing.assert_allclose(found[1], expected[1], atol=1e-4)
    assert found[2] == expected[2]


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_two_turns_equal_the_twin(engine, run, prompts, temperature):
    """The log-probability is that at the sampling temperature; the turn's last token is read with what follows it."""
    draw = Draw(temperature)
    first = write(engine, run, [0, 1, 2, 3], prompts, draw=draw)
    read = run.parts.policy.tokenizer.encode(" The")
    turns = [row(first, s) for s in range(4)]
    new = [[tokens[-1], *read] for tokens, _, _ in turns]
    start = [len(p) + len(tokens) - 1 for p, (tokens, _, _) in zip(prompts, turns, strict=True)]
    later = keys(4, seed=6)
    second = write(engine, run, [0, 1, 2, 3], new, start=start, key=later, draw=draw)
    for s, prompt in enumerate(prompts):
        same(turns[s], expect(run, prompt, key=keys(4)[s], draw=draw))
        context = [*prompt, *turns[s][0], *read]
        same(row(second, s), expect(run, context, key=later[s], draw=draw))


def test_every_slot_draws_in_its_own_way(engine, run, prompts):
    """Whole, at another temperature, cut, and the most likely token, side by side."""
    own = [Draw(), Draw(0.6), Draw(1.5, top_k=20, top_p=0.8, min_p=0.1), Draw(0.0)]
    written = write(engine, run, [0, 1, 2, 3], [prompts[0]] * 4, draw=own)
    for s, draw in enumerate(own):
        same(row(written, s), expect(run, prompts[0], key=keys(4)[s], draw=draw))


def test_turns_of_every_kind_occur(engine, run, prompts):
    """The test above means something: some turns stop at a tag, and some run out of tokens."""
    written = write(engine, run, [0, 1, 2, 3], prompts, budget=[6, 6, 2, 6])
    assert written.stopped.any()
    assert not written.stopped.all()


@pytest.mark.parametrize("slots", [[3], [1, 3], [3, 0, 2], [2, 0, 3, 1]])
def test_neither_the_slot_nor_its_neighbours_matter(engine, run, prompts, slots):
    """Any subset of the slots, in any order, padded to any of the sizes."""
    every = write(engine, run, [0, 1, 2, 3], prompts)
    chosen = prompts[: len(slots)]
    some = write(engine, run, slots, chosen, key=keys(4)[: len(slots)])
    for s in range(len(slots)):
        same(row(some, s), row(every, s))


@pytest.mark.parametrize(("slots", "left"), [([1, 2], 3), ([2, 0, 3], 1), ([0, 3], 2)])
def test_a_call_leaves_other_slots_alone(engine, run, prompts, slots, left):
    write(engine, run, [0, 1, 2, 3], prompts, budget=[0] * 4)
    write(engine, run, slots, [[7, 8, 9]] * len(slots), start=[3] * len(slots))
    last = write(
        engine, run, [left], [prompts[left][-1:]], start=[len(prompts[left]) - 1], key=keys(4)[left : left + 1]
    )
    same(row(last, 0), expect(run, prompts[left], key=keys(4)[left]))


def test_buckets_do_not_matter(engine, run, prompts):
    """A prompt read at once, or in two parts of other padding."""
    whole = write(engine, run, [0], [prompts[0]], key=keys(1))
    write(engine, run, [1], [prompts[0][:2]], budget=[0])
    parts = write(engine, run, [1], [prompts[0][2:]], start=[2], key=keys(1))
    same(row(parts, 0), row(whole, 0))


def test_a_fork_equals_a_fresh_slot(engine, run, prompts):
    """Copied and cut back to the prompt, after the source has gone on."""
    write(engine, run, [2], [prompts[1]], budget=[0])
    write(engine, run, [2], [[5, 6, 7]], start=[len(prompts[1])])
    engine.copy(source=[2, 2], target=[0, 3])
    forked = write(engine, run, [0, 3], [prompts[1][-1:]] * 2, start=[len(prompts[1]) - 1] * 2, key=keys(2))
    for s in range(2):
        same(row(forked, s), expect(run, prompts[1], key=keys(2)[s]))


def test_a_copy_onto_the_sources_takes_all_at_once(engine, run, prompts):
    """Prompts lie in the slots that the first rollouts take."""
    write(engine, run, [0, 1], prompts[:2], budget=[0, 0])
    engine.copy(source=[0, 0, 1, 1], target=[0, 1, 2, 3])
    held = [prompts[0], prompts[0], prompts[1], prompts[1]]
    start = [len(ids) - 1 for ids in held]
    written = write(engine, run, [0, 1, 2, 3], [ids[-1:] for ids in held], start=start)
    for s in range(4):
        same(row(written, s), expect(run, held[s], key=keys(4)[s]))


@pytest.mark.parametrize("budget", [0, 1, 2])
def test_the_budget_bounds_the_turn(engine, run, prompts, budget):
    tokens, _, stopped = row(write(engine, run, [1], prompts[:1], budget=[budget], key=keys(1)), 0)
    assert len(tokens) == budget
    assert not stopped


def test_a_context_filled_to_its_end_is_still_right(engine, run, prompts):
    limit = engine.sampling.max_context
    long = (prompts[0] * 20)[: limit - 3]
    for at in range(0, len(long) - 1, 24):
        write(engine, run, [3], [long[: len(long) - 1][at : at + 24]], start=[at], budget=[0])
    last = write(engine, run, [3], [long[-1:]], start=[len(long) - 1], budget=[3], key=keys(1))
    same(row(last, 0), expect(run, long, key=keys(1)[0], budget=3))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"new": [[1] * 25]}, r"25 new tokens at once exceed the largest of config.sampling.buckets \(1, 8, 24\)"),
        ({"new": [[1]], "start": [90]}, "slot 3: 90 tokens, 1 more and 6 to write exceed .*max_context 96"),
    ],
)
def test_what_does_not_fit_is_refused(engine, run, call, said):
    with pytest.raises(InputError, match=said):
        write(engine, run, [3], **call)


def test_a_context_beyond_the_models_positions_is_refused(run):
    with pytest.raises(InputError, match="max_context is 200, but the model has 160 positions"):
        small.engine(run.parts, max_context=200)
