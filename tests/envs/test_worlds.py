"""Worlds: facts, passages and questions that hang together, and worlds that differ."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsearch.envs import worlds
from rlsearch.envs.worlds import RELATIONS, WorldsConfig, draw_chain, draw_questions, make_world, name_pool
from rlsearch.errors import InputError
from rlsearch.search.corpus import Corpus
from rlsearch.search.light import LightEncoder, LightSettings
from rlsearch.search.scann_index import ScannRetriever
from rlsearch.search.scann_manifest import ScannSettings

SIZES = {"training": 2, "heldout": 2, "persons": 24, "cities": 8, "countries": 4, "companies": 6, "hops": (1, 2, 3)}
SMALL = WorldsConfig(names=60, **SIZES)
FULL = WorldsConfig(**SIZES | {"names": 1200, "persons": 150, "cities": 40, "countries": 20, "companies": 40})
SEEDS = st.integers(0, 2**31 - 1)


@given(seed=SEEDS, index=st.integers(0, 99), split=st.sampled_from(["train", "heldout"]))
def test_every_fact_is_one_passage_that_says_it(seed, index, split):
    world = make_world(SMALL, seed=seed, index=index, split=split)
    pairs = [(entity, relation) for entity in world.facts for relation in world.facts[entity]]
    assert sorted(world.passage_of.values()) == list(range(len(pairs))) == list(range(len(world.passages)))
    assert len({passage.id for passage in world.passages}) == len(pairs)
    for entity, relation in pairs:
        passage, value = world.passages[world.passage_of[entity, relation]], world.facts[entity][relation]
        assert passage.title == entity
        assert all(word in passage.text for word in (entity, relation, value))
        assert value != entity
        assert (world.kinds[entity], world.kinds[value]) == RELATIONS[relation]


@given(seed=SEEDS)
def test_entities_are_counted_and_named_apart(seed):
    world = make_world(SMALL, seed=seed, index=0, split="train")
    kinds = list(world.kinds.values())
    assert [kinds.count(kind) for kind in ("person", "city", "country", "company")] == [24, 8, 4, 6]
    assert set(world.kinds) <= set(name_pool(SMALL, seed=seed))
    assert len(set(name_pool(SMALL, seed=seed))) == 60


@given(seed=SEEDS, hops=st.integers(1, 3))
def test_a_chain_follows_facts_and_meets_nobody_twice(seed, hops):
    world = make_world(SMALL, seed=3, index=0, split="train")
    chain = draw_chain(world, np.random.default_rng(seed), hops=hops)
    here = chain.entity
    for relation, value in zip(chain.relations, chain.values, strict=True):
        assert world.facts[here][relation] == value
        here = value
    assert len({chain.entity, *chain.values}) == hops + 1 == len(chain.relations) + 1


def test_a_question_names_its_relations_backwards_and_its_evidence():
    world = make_world(SMALL, seed=0, index=1, split="heldout")
    for question in draw_questions(SMALL, world, seed=0, count=30):
        path, entity = question.text.removeprefix("What is the ").removesuffix("?").rsplit(" of ", 1)
        here, support = entity, []
        for relation in reversed(path.split(" of the ")):
            support.append(world.passages[world.passage_of[here, relation]].id)
            here = world.facts[here][relation]
        assert question.answers == (here,)
        assert question.supporting_ids == tuple(support)
        assert question.hops == len(support)
        assert question.corpus == "heldout_001"


def test_hops_are_asked_in_turn_and_ids_differ():
    asked = [
        question
        for split in ("train", "heldout")
        for index in range(2)
        for question in draw_questions(SMALL, make_world(SMALL, seed=0, index=index, split=split), seed=0, count=9)
    ]
    assert [question.hops for question in asked[:6]] == [1, 2, 3, 1, 2, 3]
    assert len({question.id for question in asked}) == len(asked)


def test_everything_is_a_function_of_seed_split_and_index():
    def make(seed=0, index=0, split="train"):
        world = make_world(SMALL, seed=seed, index=index, split=split)
        return world.passages, tuple(q.text for q in draw_questions(SMALL, world, seed=seed, count=9))

    assert make() == make()
    others = [make(seed=1), make(index=1), make(split="heldout")]
    assert all(other[1] != make()[1] for other in others)
    texts = {passage.text for passage in make()[0]}
    assert all(len(texts & {passage.text for passage in other[0]}) < 0.02 * len(texts) for other in others)


def test_held_out_worlds_tell_other_facts_about_the_same_names():
    """What was learned by heart about a name is wrong in another world."""
    seen, unseen = (make_world(FULL, seed=0, index=0, split=split) for split in ("train", "heldout"))
    both = [
        (entity, relation)
        for entity in set(seen.facts) & set(unseen.facts)
        for relation in seen.facts[entity].keys() & unseen.facts[entity].keys()
    ]
    assert len(both) > 50
    assert np.mean([seen.facts[e][r] == unseen.facts[e][r] for e, r in both]) < 0.1


def test_the_retriever_of_a_run_finds_the_passage_that_a_search_asks_for():
    """Through the real encoder and index, for every fact of a world of the quickstart's size."""
    world = make_world(FULL, seed=0, index=0, split="heldout")
    encoder = LightEncoder.fit(world.passages, LightSettings(width=512, title_weight=4.0, pair_weight=4.0))
    settings = ScannSettings(
        brute_force_rows=20000, leaves=100, leaves_searched=20, block_dimensions=2, anisotropic_threshold=0.2,
        reorder=100, memory_gb=1.0,
    )  # fmt: skip
    retriever = ScannRetriever.of_vectors(
        Corpus.of(world.passages, world.name), encoder.encode_passages(world.passages), encoder, settings
    )
    pairs = list(world.passage_of)
    hits = retriever.search([f"{relation} {entity}" for entity, relation in pairs], k=1)
    wanted = [world.passages[world.passage_of[pair]].id for pair in pairs]
    assert np.mean([hit.passages[0].id == passage for hit, passage in zip(hits, wanted, strict=True)]) >= 0.99


@pytest.mark.parametrize("few", [{"persons": 3}, {"countries": 0}])
def test_a_world_too_small_for_its_questions_is_refused(few):
    """Drawing a chain without repeats would never end."""
    with pytest.raises(InputError, match="needs one of each and more persons than a question has hops"):
        WorldsConfig(names=60, **SIZES | few)


@pytest.mark.parametrize(
    ("names", "said"), [(41, "names is 41, but a world holds 42 entities"), (9999, "there are 5760 names at most")]
)
def test_a_pool_that_cannot_be_is_refused(names, said):
    assert len(worlds.STARTS) * len(worlds.ENDS) == 5760
    with pytest.raises(InputError, match=said):
        WorldsConfig(names=names, **SIZES)
