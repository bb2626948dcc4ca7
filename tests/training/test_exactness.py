"""The law of exactness: a packed forest has the loss and the gradient of its paths, each computed on its own."""

from __future__ import annotations

import random
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlsearch.losses import terms
from rlsearch.losses.terms import Term
from rlsearch.training.step import StepConfig, target_logps
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Forest, Kind
from rlsearch.tree.pack import pack
from tests.credit.by_node import by_node
from tests.losses import plain
from tests.models import small
from tests.training import cases, per_path, steps
from tests.tree.random_forests import TERMS, random_forest, random_trees

SPLIT = {"width": 20, "targets": 9, "block": 2}
BUSHY = {"seed": 1, "trees": 3, "depth": 3, "branching": 3, "longest": 4}
SIZES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "trees": st.integers(1, 3),
        "depth": st.integers(1, 3),
        "branching": st.integers(1, 3),
        "longest": st.integers(1, 4),
    }
)


def models():
    return small.parameters(small.config()), small.parameters(small.config(), seed=7)


def assert_exact(forest: Forest, step: StepConfig, mesh, **shape: int) -> None:
    """Where the loss corrects for the sampler, the policy before the update is another than the sampler."""
    more = {"old": None if step.loss.mismatch is None else cases.drifted(forest)}
    more["critic"] = cases.critic() if step.critic else None
    expected = per_path.loss_and_gradient(*models(), forest, step, **more)
    steps.assert_equal(steps.loss_and_gradient(*models(), forest, step, mesh, **more, **shape), expected)


CASES = [pytest.param(name, marks=() if name in cases.FAST else pytest.mark.slow) for name in cases.LOSSES]


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5)
@given(sizes=SIZES)
@example(sizes=BUSHY)
def test_packed_equals_one_path_at_a_time(name, sizes):
    assert_exact(random_forest(**sizes), cases.step(name), steps.mesh(), **SPLIT)


@pytest.mark.parametrize("name", CASES)
def test_an_episode_in_several_contexts(name):
    forest = random_forest(**BUSHY)
    contexts = cases.in_contexts(forest, 3)
    assert len(set(contexts.nodes.episode)) < len(set(forest.nodes.episode)) - 2
    assert_exact(contexts, cases.step(name), steps.mesh(), **SPLIT)


def toward(targets, batch):
    """A term that trains a critic towards the advantage."""
    return (targets.weight * jnp.square(targets.value[..., None] - targets.advantage)).sum()


def plain_toward(paths):
    return (paths.weight * jnp.square(paths.value - paths.advantage)).sum()


@pytest.mark.slow
@settings(max_examples=5)
@given(sizes=SIZES)
@example(sizes=BUSHY)
def test_a_critic_too(sizes):
    """Its values stand before the tokens they are of, on whichever path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(terms.TERMS, "toward", Term(toward, whole=False, reference=False, critic=True))
        patch.setitem(plain.TERMS, "toward", plain_toward)
        step = steps.make(cases.GRPO, {"terms": ({"kind": "toward"},)})
        assert_exact(random_forest(**sizes), step, steps.mesh(), **SPLIT)


def test_the_cases_hold_every_choice():
    for choice, known in (
        ("level", cases.LEVELS), ("clip", cases.CLIP), ("mismatch", cases.MISMATCH), ("reduction", cases.REDUCTION),
    ):  # fmt: skip
        found = [{**steps.LOSS, **loss}[choice] for _, loss in cases.LOSSES.values()]
        assert {x if isinstance(x, str) else x["kind"] for x in found if x is not None} == set(known)
    penalties = [loss["kl"] for _, loss in cases.LOSSES.values() if loss.get("kl")]
    assert {(kl["place"], kl["estimator"]) for kl in penalties} == {
        (place, name) for place in ("loss", "reward") for name in ("k1", "k2", "k3")
    }


@pytest.mark.parametrize("name", ["gspo", pytest.param("one pass", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "shape",
    [
        {"width": 160, "targets": 120, "block": 1},
        pytest.param({"width": 40, "targets": 30, "block": 3}, marks=pytest.mark.slow),
        pytest.param({"width": 17, "targets": 5, "block": 1}, marks=pytest.mark.slow),
    ],
)
def test_any_packing_and_accumulation(name, shape):
    assert_exact(random_forest(**BUSHY), cases.step(name), steps.mesh(), **shape)


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("one pass", {"data": 2, "fsdp": 2, "model": 2}),
        ("one pass", {"fsdp": 2, "sequence": 2, "model": 2}),
        pytest.param("gspo", {"data": 2, "sequence": 4}, marks=pytest.mark.slow),
        pytest.param("gspo", {"data": 2}, marks=pytest.mark.slow),
        pytest.param("gspo", {"data": 2, "fsdp": 2, "model": 2}, marks=pytest.mark.slow),
        pytest.param("one pass", {"fsdp": 2}, marks=pytest.mark.slow),
        pytest.param("one pass", {"model": 2}, marks=pytest.mark.slow),
        pytest.param("gspo", {"data": 8}, marks=pytest.mark.slow),
        pytest.param("one pass", {"fsdp": 8}, marks=pytest.mark.slow),
    ],
)
def test_any_mesh(name, axes):
    assert_exact(random_forest(**BUSHY), cases.step(name), steps.mesh(**axes), **{**SPLIT, "block": 8, "targets": 12})


@pytest.mark.slow
def test_groups_of_equal_rewards_that_are_kept_pay_kl_and_entropy():
    step, forest = steps.config("grpo", "token", drop_equal=False), random_forest(**BUSHY)
    flat = replace(forest, nodes=replace(forest.nodes, rewards=np.zeros_like(forest.nodes.rewards)))
    assert abs(per_path.loss_and_gradient(*models(), flat, step)[0]) > 1e-3
    assert_exact(flat, step, steps.mesh(), **SPLIT)


@pytest.mark.parametrize("name", ["one pass", "gspo"])
@settings(max_examples=5)
@given(sizes=SIZES, seed=st.integers(0, 99))
def test_the_order_of_trees_and_siblings_does_not_matter(name, sizes, seed):
    step, trees, shuffled = cases.step(name), random_trees(**sizes), random.Random(seed)

    def shuffle(branch):
        children = [shuffle(child) for child in branch.children]
        return replace(branch, children=shuffled.sample(children, k=len(children)))

    other = [(question, shuffle(root)) for question, root in shuffled.sample(trees, k=len(trees))]
    found = [
        steps.loss_and_gradient(*models(), build(forest, terms=TERMS), step, steps.mesh(), **SPLIT)
        for forest in (trees, other)
    ]
    steps.assert_equal(found[1], found[0])


def test_siblings_do_not_see_each_other():
    """Every token has an id of its own, so the gradient by a row of the embedding is that of one token, and is 0."""
    ids = iter(range(32))

    def branch(level, children=(), **end):
        tokens = [next(ids) for _ in range(3)]
        return Branch(
            Kind.ANSWER if level else Kind.PROMPT, level, tokens, [-1.0] * 3 if level else None, list(children), **end
        )

    def leaf(episode):
        return branch(2, episode=episode, rewards=[0.0])

    forest = build([(0, branch(0, [branch(1, [leaf(0), leaf(1)]), branch(1, episode=2, rewards=[1.0])]))], terms=1)
    cfg = small.config(tied=False)
    rows = pack(forest, width=24, targets=16, multiple=1).rows
    assert not (rows.target_node != forest.token_node[rows.target])[rows.target >= 0].any()

    def logps(params):
        return target_logps(
            params, cfg, rows, attention="dense", temperature=1.0, remat=False, logp_chunk=0
        )[0][0]  # fmt: skip

    slopes = np.asarray(jax.jit(jax.jacrev(logps))(small.parameters(cfg))["embed"]["embedding"])
    for slot in np.flatnonzero(rows.target[0] >= 0):
        own = int(rows.target[0, slot])
        above = set(per_path.ancestors(forest.prev, int(forest.prev[own])))
        for token, token_id in enumerate(forest.token_id):
            assert slopes[slot, token_id].any() == (token in above), (slot, token)


def test_the_example_is_not_trivial():
    """Splits, several blocks, ratios beyond the clips, tokens shared by good and bad episodes: or it proves little."""
    forest, step = random_forest(**BUSHY), steps.config("grpo", "token")
    assert pack(forest, width=20, targets=9, multiple=2).repeated
    assert steps.batch(forest, **SPLIT)[1] >= 3
    _, metrics, credit = steps.take(*models(), forest, step, steps.mesh(), **SPLIT)
    assert 0.2 < metrics["clip_fraction"] < 0.9
    assert metrics["kl"] > 0.1
    value = np.asarray(by_node(credit, steps.batch(forest, **SPLIT)[2].paths).advantage.node)
    assert ((value > 0).any(axis=1) & (value < 0).any(axis=1)).any()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(metrics))
