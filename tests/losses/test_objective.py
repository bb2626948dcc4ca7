"""The objective on a packed forest is the textbook's on its paths, for every choice of each of its parts.

No model takes part: log-probabilities are drawn for every token. ``tests/training/test_exactness.py`` puts the model
in front.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.credit import registry
from rlsearch.losses import policy
from rlsearch.losses.clip import CLIPS
from rlsearch.losses.kl import ESTIMATORS, WEIGHTS
from rlsearch.losses.level import LEVELS
from rlsearch.losses.mismatch import CORRECTIONS
from rlsearch.losses.reduce import REDUCTIONS
from tests.losses import plain
from tests.losses.forests import packed as packed_column
from tests.losses.forests import targets_of
from tests.training import per_path, steps
from tests.training.cases import CLIP, MISMATCH, REDUCTION, WEIGHT, in_contexts
from tests.tree.random_forests import VOCABULARY, random_forest

SHAPE = {"width": 20, "targets": 9, "multiple": 96}
SIZES = {"trees": 3, "depth": 3, "branching": 3, "longest": 4}
CREDIT = registry.read(ConfigDict({"estimator": "tree_grpo", "scale": True, "drop_equal": True}))


def kl(estimator: str, weights: str) -> dict:
    return {"coefficient": 0.3, "estimator": estimator, "place": "loss", "weights": WEIGHT[weights]}


CASES = {
    **{f"level {name}": {"level": name} for name in LEVELS},
    **{f"clip {name}": {"clip": CLIP[name]} for name in CLIPS},
    **{f"clip {name} of sequences": {"clip": CLIP[name], "level": "sequence"} for name in CLIPS},
    **{f"mismatch {name}": {"mismatch": MISMATCH[name]} for name in CORRECTIONS},
    **{f"reduction {name}": {"reduction": REDUCTION[name]} for name in REDUCTIONS},
    **{f"kl {name} {weights}": {"kl": kl(name, weights)} for name in ESTIMATORS for weights in WEIGHTS},
}


def columns(forest, seed: int) -> dict[str, np.ndarray]:
    """Scores of every token, near the sampler's, so that ratios lie on both sides of a clip."""
    rng = np.random.default_rng(seed)
    near = {name: -abs(forest.behavior_logp + rng.normal(0, 0.4, len(forest.token_id))) for name in
            ("logp", "old_logp", "reference_logp")}  # fmt: skip
    return {**near, "entropy": rng.uniform(0, np.log(VOCABULARY), len(forest.token_id))}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**16), contexts=st.booleans())
def test_packed_equals_the_textbook_on_every_path(case, seed, contexts):
    """Also where an episode has several contexts, and so several paths."""
    section = {**steps.LOSS, **CASES[case]}
    config, forest = policy.read(ConfigDict(section)), random_forest(seed, **SIZES)
    forest = in_contexts(forest, seed) if contexts else forest
    drawn = {name: column.astype(np.float32) for name, column in columns(forest, seed).items()}
    made, batch = targets_of(forest, CREDIT, config.reduction, drawn, weights=(1.0, 0.5), shape=SHAPE)

    def packed(logp, entropy):
        return policy.objective(config, replace(made, logp=logp, entropy=entropy), batch)[0]

    loss, slopes = jax.value_and_grad(packed, argnums=(0, 1))(made.logp, made.entropy)
    expected, by_token = on_paths(forest, config, drawn)
    assert float(loss) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    token, use = packed_column(forest, np.arange(len(forest.token_id)), SHAPE).astype(int), np.asarray(made.use)
    for slope, want in zip(slopes, by_token, strict=True):
        found = np.zeros(len(forest.token_id))
        found[token[use]] = np.asarray(slope)[use]
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)
        assert not np.asarray(slope)[~use].any()


def on_paths(forest, config, drawn) -> tuple[float, list[np.ndarray]]:
    """The textbook's loss, and its gradient by log-probabilities and entropies of every token of the forest."""
    step = replace(steps.make({"estimator": "tree_grpo", "scale": True, "drop_equal": True}, {}), loss=config)
    _, sampled, paths, leaves = per_path.lay_out(forest, drawn["old_logp"])
    others = {name: per_path.lay_out(forest, drawn[name])[2].old for name in ("logp", "reference_logp", "entropy")}
    paths = replace(paths, reference=others["reference_logp"])
    paths = per_path.credited(paths, forest, step, sampled, leaves)

    def textbook(logp, entropy):
        return plain.objective(replace(paths, logp=logp, entropy=entropy), config)

    used = [jnp.where(paths.use, others[name], 0.0) for name in ("logp", "entropy")]
    loss, slopes = jax.value_and_grad(textbook, argnums=(0, 1))(*used)
    token = per_path.lay_out(forest, np.arange(len(forest.token_id)))[2].old.astype(int)
    found = [np.zeros(len(forest.token_id)) for _ in slopes]
    for total, slope in zip(found, slopes, strict=True):
        np.add.at(total, token[paths.use], np.asarray(slope)[paths.use])
    return float(loss), found


def test_every_choice_has_a_textbook():
    assert set(CLIP) == set(CLIPS) == set(plain.CLIPS)
    assert set(plain.LEVELS) == set(LEVELS)
    assert set(MISMATCH) == set(CORRECTIONS) == set(plain.CORRECTIONS)
    assert set(WEIGHT) == set(WEIGHTS) == set(plain.KL_WEIGHTS)
    assert set(plain.ESTIMATORS) == set(ESTIMATORS)
    assert set(REDUCTION) == set(REDUCTIONS)
