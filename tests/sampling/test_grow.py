"""Rollouts: ids kept as sampled, observations apart, log-probabilities as the trainer has them, limits kept."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest

from rlsearch.envs import observations
from rlsearch.errors import InputError
from rlsearch.sampling.draw import Draw
from rlsearch.sampling.expanders.chains import Group
from rlsearch.sampling.expanders.random_expansion import RandomExpansion
from rlsearch.sampling.grow import Grower, grow
from rlsearch.sampling.rollouts import POLICY
from rlsearch.training.step import target_logps
from rlsearch.tree import pack
from rlsearch.tree.build import Branch, build
from rlsearch.tree.check import check
from rlsearch.tree.forest import Kind
from tests import small
from tests.sampling.twin import next_logps

EXPANDERS = {"group": Group(4), "expansion": RandomExpansion(trees=2, branches=1, rounds=1)}


@pytest.fixture(scope="module")
def run():
    return small.warmed()


def rollouts(run, expander, questions, *, engine=None, seed=3, temperature=1.0):
    engine = engine or run.parts.engine
    grower = Grower(
        engine, run.parts.scene, {POLICY: run.params}, jax.random.key(seed), Draw(temperature), version=7,
        score=lambda state: 0.0,
    )  # fmt: skip
    grown = grow(grower, expander, questions, np.random.default_rng(seed))
    return grown, grown.trees


@functools.cache
def grow_once(name: str):
    run = small.warmed()
    return rollouts(run, EXPANDERS[name], run.parts.task.train[:4])


@pytest.fixture(params=EXPANDERS)
def grown(request):
    """Once for the module, and within a test: what is compiled under other settings is compiled again."""
    return grow_once(request.param)


def nodes(branch: Branch, above: tuple[Branch, ...] = ()):
    """Every node with the path to it."""
    yield (*above, branch)
    for child in branch.children:
        yield from nodes(child, (*above, branch))


def ends(tree) -> dict[int, list[Branch]]:
    """The path of every episode by its number."""
    return {path[-1].episode: list(path) for path in nodes(tree.root) if path[-1].episode != -1}


def test_the_forest_is_sound(grown):
    grower, trees = grown
    forest = build([(tree.question, tree.root) for tree in trees], terms=0)
    check(forest)
    assert forest.sampled.sum() == grower.sampled_tokens == sum(spent.tokens for spent in grower.spent)
    assert set(forest.nodes.question) == {0, 1, 2, 3}
    assert {n.version for tree in trees for (*_, n) in nodes(tree.root) if n.logps is not None} == {7}


def test_what_was_sampled_is_kept_as_ids_and_read_as_text(grown, run):
    """Turn by turn, a path holds the ids that were written, and the state the text that they decode to."""
    _, trees = grown
    searched = 0
    for tree in trees:
        paths = ends(tree)
        for episode in tree.episodes:
            path = paths[episode.leaf.episode]
            written = [node for node in path if node.logps is not None]
            texts = [run.parts.policy.tokenizer.decode(node.tokens) for node in written]
            assert texts == [turn.text for turn in episode.state.turns]
            assert [len(node.tokens) for node in written] == [len(node.logps) for node in written]
            searched += episode.state.searches
    assert searched


def test_observations_are_encoded_apart(grown, run):
    """What is read is a node of its own: the observation of the turn before it, encoded without that turn."""
    _, trees = grown
    for tree in trees:
        paths = ends(tree)
        for episode in tree.episodes:
            read = [node.tokens for node in paths[episode.leaf.episode] if node.kind is Kind.OBSERVATION]
            shown = [turn.observation for turn in episode.state.turns if turn.observation][: len(read)]
            limit = run.parts.engine.sampling.max_observation_tokens
            tokenizer = run.parts.policy.tokenizer
            assert read == [observations.encode(seen, tokenizer=tokenizer, limit=limit).ids for seen in shown]


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize("name", EXPANDERS)
def test_sampler_and_trainer_agree_on_log_probabilities(run, name, temperature):
    """Through slots, forks and cuts on one side, packed trees in rows on the other."""
    _, trees = rollouts(run, EXPANDERS[name], run.parts.task.train[4:8], temperature=temperature)
    forest = build([(tree.question, tree.root) for tree in trees], terms=0)
    rows = pack.pack(forest, width=128, targets=48, multiple=8).rows
    logp, _ = jax.jit(
        target_logps, static_argnums=1, static_argnames=("attention", "temperature", "remat", "logp_chunk")
    )(run.params, run.parts.policy.model, rows, attention="dense", temperature=temperature, remat=False, logp_chunk=0)
    use = rows.target >= 0
    assert use.sum() == forest.sampled.sum() > 50
    np.testing.assert_allclose(np.asarray(logp)[use], rows.behavior_logp[use], atol=1e-4)


def test_a_path_alone_gives_the_same_log_probabilities(grown, run):
    """The twin without tree, cache and rows."""
    _, trees = grown
    path = max(ends(trees[0]).values(), key=len)
    context = []
    for node in path:
        for n, token in enumerate(node.tokens):
            if node.logps is not None:
                logp = next_logps(run.params, run.parts.policy.model, context, temperature=1.0)[token]
                np.testing.assert_allclose(node.logps[n], logp, atol=1e-4)
            context.append(token)


def test_the_number_of_questions_does_not_matter(run):
    """Rollouts of a question are the same with others beside it: keys belong to episodes, not to slots."""
    questions = run.parts.task.train[:3]
    _, alone = rollouts(run, Group(2), questions[:1])
    _, beside = rollouts(run, Group(2), questions)
    assert [e.state for e in alone[0].episodes] == [e.state for e in beside[0].episodes]


def test_equal_questions_read_their_prompt_once(run):
    question = run.parts.task.train[0]
    twice = [question, dataclasses.replace(question, id="again")]
    grower, trees = rollouts(run, Group(2), twice, temperature=0.0)
    prompt = len(trees[0].root.tokens)
    once, _ = rollouts(run, Group(4), twice[:1], temperature=0.0)
    assert grower.read_tokens == once.read_tokens >= prompt - 1
    assert [tree.question for tree in trees] == [0, 1]


def test_a_full_context_ends_the_episode_and_counts(run):
    question = run.parts.task.train[0]
    prompt = len(run.parts.scene.template.prompt_ids(run.parts.policy.tokenizer, question.text))
    engine = small.engine(run.parts, max_context=prompt + 12)
    _, (tree,) = rollouts(run, Group(8), [question], engine=engine)
    cut = [episode for episode in tree.episodes if episode.cut]
    assert cut
    assert all(episode.state.answer is None for episode in cut)
    assert all(sum(len(n.tokens) for n in path) <= prompt + 12 for path in ends(tree).values())
    check(build([(0, tree.root)], terms=0))


def test_long_observations_are_cut_and_counted(run):
    engine = small.engine(run.parts, max_observation_tokens=8)
    grower, (tree,) = rollouts(run, Group(8), run.parts.task.train[:1], engine=engine)
    read = [path[-1] for path in nodes(tree.root) if path[-1].kind is Kind.OBSERVATION]
    assert grower.cut_observations == len([node for node in read if len(node.tokens) == 8]) > 0
    assert all(len(node.tokens) <= 8 for node in read)


@pytest.mark.parametrize(("words", "limit"), [(30, r"max_context 96"), (46, r"max_context 96")])
def test_a_question_longer_than_what_can_be_read_is_refused_by_name(run, words, limit):
    good = run.parts.task.train[0]
    long = dataclasses.replace(good, id="set/42", text="Who " * words)
    with pytest.raises(InputError, match=r"question set/42: its prompt of \d+ tokens .*" + limit):
        rollouts(run, Group(2), [good, long])


def test_more_rollouts_than_slots_wait_for_one(run):
    """Twenty on sixteen slots, and on two: the same, whoever waits for whom."""
    questions = [dataclasses.replace(run.parts.task.train[i], id=str(i)) for i in range(5)]
    _, many = rollouts(run, Group(4), questions)
    _, few = rollouts(run, Group(4), questions, engine=small.engine(run.parts, slots=(2,)))
    assert [e.state for tree in many for e in tree.episodes] == [e.state for tree in few for e in tree.episodes]
    assert sum(len(tree.episodes) for tree in few) == 20
