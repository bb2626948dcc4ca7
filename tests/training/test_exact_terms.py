"""Every term of the loss on a packed forest is what it is on paths that share nothing, without and with a model."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.credit import registry
from rlsearch.losses import likelihood, offline, policy, preference
from rlsearch.losses.terms import TERMS
from rlsearch.training.step import StepConfig
from rlsearch.tree.forest import Forest
from tests.losses import plain, plain_terms  # noqa: F401  (plain_terms registers them)
from tests.losses.forests import packed as packed_column
from tests.losses.forests import targets_of
from tests.losses.test_objective import SHAPE, columns
from tests.training import cases, per_path, steps
from tests.training.test_exactness import SPLIT, assert_exact
from tests.tree.random_forests import random_forest

SIZES = {"trees": 3, "depth": 3, "branching": 3, "longest": 4}
ALONE = {"clip": None, "kl": None, "entropy": 0.0}
LLDS = {"kind": "llds", "coefficient": 0.7, "gate": "sequence", "preserve": "good", "answers": 1.0}
SFT = {"kind": "sft", "coefficient": 0.7, "note": None, "above": 0.3}
DPO = {"kind": "dpo", "coefficient": 0.7, "beta": 0.5, "pairs": "all"}
PACS = {"kind": "pacs", "coefficient": 0.7, "beta": 0.5, "above": 0.3, "balance": False}
OREAL = {"kind": "oreal", "coefficient": 0.7, "above": 0.3, "negative": 0.5, "multiply": False}
A_LOL = {"kind": "a_lol", "coefficient": 0.7, "ratio": "sequence", "clip": 0.9, "baseline": "mean"}
A_LOL_FREE = {"kind": "a_lol_free", "coefficient": 0.7, "baseline": "mean"}
RL_PLUS = {"kind": "rl_plus", "coefficient": 0.7, "low": 0.2, "high": 0.3, "behaviour": "estimated", "power": 0.5}
# Each with the reduction that it is tested at.
CASES = {
    "llds": (LLDS, "token"),
    "llds of turns": ({**LLDS, "gate": "turn", "answers": 0.25}, "sequence"),
    "llds of nodes": ({**LLDS, "gate": "node", "preserve": "all"}, "node"),
    "lld": ({**LLDS, "gate": "token"}, "token"),
    "sft of positives": (SFT, "token"),
    "sft of experts": ({**SFT, "note": "expert", "above": 0.0}, "sequence"),
    "dpo": (DPO, "token"),
    "dpo of extremes": ({**DPO, "pairs": "extremes"}, "token"),
    "pacs": (PACS, "token"),
    "pacs balanced": ({**PACS, "balance": True}, "token"),
    "oreal": (OREAL, "token"),
    "oreal weighed": ({**OREAL, "multiply": True}, "sequence"),
    "a_lol": (A_LOL, "token"),
    "a_lol seq": ({**A_LOL, "ratio": "token", "baseline": "note"}, "token"),
    "a_lol free": (A_LOL_FREE, "token"),
    "a_lol free noted": ({**A_LOL_FREE, "baseline": "note"}, "token"),
    "rl_plus": (RL_PLUS, "token"),
    "rl_plus recorded": ({**RL_PLUS, "behaviour": "recorded", "power": 0.0}, "sequence"),
}  # fmt: skip
MINE = {
    name for name, term in TERMS.items() if term.function.__module__ in
    {module.__name__ for module in (likelihood, offline, preference)}
}  # fmt: skip


def noted(forest: Forest, seed: int) -> Forest:
    """With notes of all kinds of values at every node; those of contexts differ, and the first one's is said."""
    rng = np.random.default_rng(seed)
    names = ("expert", "external", "baseline")
    notes = {name: rng.choice([0.0, 0.0, 1.0, 0.35, -0.5], size=len(forest.nodes.end)) for name in names}
    notes = {name: column.astype(np.float32) for name, column in notes.items()}
    return replace(forest, nodes=replace(forest.nodes, notes=notes))


def section(case: str) -> dict:
    term, reduction = CASES[case]
    return {**steps.LOSS, **ALONE, "reduction": {"kind": reduction}, "terms": (term,)}


@pytest.mark.parametrize("credit", ["tree", "kept"])
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**16), contexts=st.booleans())
def test_packed_equals_the_paper_on_every_path(case, credit, seed, contexts):
    """With groups of equal rewards left out and with all kept, and where an episode has several contexts."""
    config, forest = policy.read(ConfigDict(section(case))), random_forest(seed, **SIZES)
    forest = noted(cases.in_contexts(forest, seed) if contexts else forest, seed)
    chosen = cases.TREE if credit == "tree" else cases.KEPT
    drawn = {name: column.astype(np.float32) for name, column in columns(forest, seed).items()}
    read = registry.read(ConfigDict(chosen))
    made, batch = targets_of(forest, read, config.reduction, drawn, weights=(1.0, 0.5), shape=SHAPE)

    def packed(logp):
        return policy.objective(config, replace(made, logp=logp), batch)[0]

    loss, slope = jax.value_and_grad(packed)(made.logp)
    expected, by_token = on_paths(forest, replace(steps.make(chosen, {}), loss=config), drawn)
    assert float(loss) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    token, use = packed_column(forest, np.arange(len(forest.token_id)), SHAPE).astype(int), np.asarray(made.use)
    found = np.zeros(len(forest.token_id))
    found[token[use]] = np.asarray(slope)[use]
    np.testing.assert_allclose(found, by_token, rtol=1e-4, atol=1e-6)
    assert not np.asarray(slope)[~use].any()


def on_paths(forest: Forest, step: StepConfig, drawn) -> tuple[float, np.ndarray]:
    """The plain loss, and its gradient by the log-probability of every token of the forest."""
    _, sampled, paths, leaves = per_path.lay_out(forest, drawn["old_logp"])
    others = {name: per_path.lay_out(forest, drawn[name])[2].old for name in ("logp", "reference_logp")}
    paths = per_path.credited(replace(paths, reference=others["reference_logp"]), forest, step, sampled, leaves)
    loss, slope = _plain(jnp.where(paths.use, others["logp"], 0.0), paths, step.loss)
    token = per_path.lay_out(forest, np.arange(len(forest.token_id)))[2].old.astype(int)
    found = np.zeros(len(forest.token_id))
    np.add.at(found, token[paths.use], np.asarray(slope)[paths.use])
    return float(loss), found


@functools.partial(jax.jit, static_argnames="config")
@jax.value_and_grad
def _plain(logp, paths: plain.Paths, config: policy.LossConfig):
    return plain.objective(replace(paths, logp=logp), config)


FAST = {"oreal", "llds"}  # of one pass, and of two


@pytest.mark.parametrize("case", [pytest.param(case, marks=() if case in FAST else pytest.mark.slow) for case in CASES])
@settings(max_examples=3)
@given(seed=st.integers(0, 2**16))
@example(seed=1)
def test_with_a_model_in_front(case, seed):
    """Rows are cut, siblings share tokens, and blocks are gone through once or twice as the term needs."""
    forest = cases.in_contexts(random_forest(seed, **SIZES), seed) if seed % 2 else random_forest(seed, **SIZES)
    assert_exact(noted(forest, seed), steps.make(cases.KEPT, section(case)), steps.mesh(), **SPLIT)


def test_every_term_has_a_twin_and_a_case():
    assert {term["kind"] for term, _ in CASES.values()} == MINE
    assert set(plain.TERMS) >= MINE


@pytest.mark.parametrize("case", CASES)
def test_the_examples_are_not_trivial(case):
    """The loss and its gradient are not 0, or their equality would prove little."""
    forest = noted(random_forest(1, **SIZES), 1)
    step = steps.make(cases.KEPT, section(case))
    drawn = {name: column.astype(np.float32) for name, column in columns(forest, 1).items()}
    loss, slope = on_paths(forest, step, drawn)
    assert abs(loss) > 1e-3
    assert np.count_nonzero(slope) > 5
