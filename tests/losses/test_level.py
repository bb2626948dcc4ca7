"""Levels of the ratio on trees worked by hand."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from rlsearch.credit import registry
from rlsearch.losses import logprob, policy
from rlsearch.losses.level import LEVELS
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Forest, Kind
from tests.losses.forests import targets_of
from tests.losses.test_policy import SECTION

CREDIT = registry.read(ConfigDict({"estimator": "grpo", "scale": False, "drop_equal": False}))
GSPO = {**SECTION, "level": "sequence", "kl": None, "entropy": 0.0}


def node(turn: int, log_ratios: list[float], *children: Branch, end: tuple[int, float] | None = None) -> Branch:
    """A sampled node; the tokens' ids number nothing, and ``old_logp`` of its tokens is -1 - log-ratio."""
    ends = {} if end is None else {"episode": end[0], "rewards": [end[1]]}
    return Branch(
        Kind.ANSWER, turn, [3] * len(log_ratios), [-1.0 - x for x in log_ratios], list(children), **ends
    )  # fmt: skip


def seen(turn: int, *children: Branch) -> Branch:
    return Branch(Kind.OBSERVATION, turn, [9] * 5, None, list(children))


def forest(*roots: tuple[Branch, ...]) -> Forest:
    return build([(0, Branch(Kind.PROMPT, 0, [1, 2], None, list(children))) for children in roots], terms=1)


def log_ratios(level: str, tree: Forest) -> list[list[float]]:
    """Of each sampled token, for every episode through it; for one where all agree."""
    made, batch = made_of(tree, policy.read(ConfigDict(GSPO)))
    found = np.asarray(LEVELS[level].function(made, batch))
    count = tree.nodes.paths.count[np.asarray(made.node)] if found.shape[-1] > 1 else np.ones(len(found), int)
    return [row[:n].tolist() for row, n in zip(found, count, strict=True)]


def made_of(tree: Forest, config):
    """Every new log-probability is -1."""
    ones = -np.ones(len(tree.token_id), np.float32)
    columns = {"logp": ones, "entropy": 0 * ones, "old_logp": tree.behavior_logp, "reference_logp": ones}
    return targets_of(tree, CREDIT, config.reduction, columns, weights=(1.0,))


def flat(rows: list[list[float]]) -> list[float]:
    return [x for row in rows for x in row]


CHAIN = (node(0, [0.2, -0.1], seen(1, node(1, [0.3], end=(0, 1.0)))),)


def test_each_level_on_a_chain():
    """Log-ratios .2, -.1 in the first turn, five tokens seen, .3 in the second."""
    tree = forest(CHAIN)
    assert flat(log_ratios("token", tree)) == pytest.approx([0.2, -0.1, 0.3], abs=1e-6)
    assert flat(log_ratios("node", tree)) == pytest.approx([0.05, 0.05, 0.3], abs=1e-6)
    assert flat(log_ratios("turn", tree)) == pytest.approx([0.05, 0.05, 0.3], abs=1e-6)
    assert flat(log_ratios("sequence", tree)) == pytest.approx([0.4 / 3] * 3, abs=1e-6)
    assert flat(log_ratios("sequence_token", tree)) == pytest.approx([0.4 / 3] * 3, abs=1e-6)


def test_a_sequence_is_divided_by_its_own_tokens_whatever_the_padding():
    """B083: .2, -.1, .3 and five pads: ratio exp(.4 / 3) = 1.1426, not exp(.4 / 8) = 1.0513."""
    tree = forest(CHAIN)
    ones = -np.ones(len(tree.token_id), np.float32)
    columns = {"logp": ones, "entropy": 0 * ones, "old_logp": tree.behavior_logp, "reference_logp": ones}
    rows = {"width": 16, "targets": 8, "multiple": 4}
    made, batch = targets_of(tree, CREDIT, policy.read(ConfigDict(GSPO)).reduction, columns, weights=(1.0,), shape=rows)
    assert made.use.shape == (4, 8)
    found = np.asarray(LEVELS["sequence"].function(made, batch))[np.asarray(made.use)][:, 0]
    np.testing.assert_allclose(np.exp(found), [1.1426] * 3, rtol=1e-4)


def test_a_masked_log_ratio_moves_no_sequence():
    """B082: a token that is not used goes from -2 to -6; loss and gradient of the others stay, its own is 0."""
    tree = forest(CHAIN, (node(0, [0.1, 0.4, -2.0], end=(1, 0.0)),))
    config = policy.read(ConfigDict(GSPO))
    made, batch = made_of(tree, config)
    use = made.use & (np.arange(6) != 5)

    def run(masked: float):
        given = replace(made, use=use, old_logp=jnp.asarray(made.old_logp).at[5].set(-1.0 - masked))

        def of(logp):
            only = replace(given, logp=logp, weight=jnp.where(use[:, None], given.weight, 0.0))
            return policy.objective(config, only, batch)[0]

        return jax.value_and_grad(of)(given.logp)

    (loss, slope), (other, others) = run(-2.0), run(-6.0)
    assert float(loss) == float(other)
    np.testing.assert_array_equal(slope, others)
    assert slope[5] == 0
    assert (np.asarray(slope)[:5] != 0).all()


def test_one_trajectory_in_one_row_and_in_three_has_one_ratio():
    """B054: three contexts of one episode, each with its own prompt and one turn of it, against one chain of turns."""
    parts = [[0.2, -0.1], [0.3], [0.6, 0.0, 0.1]]
    chain = node(0, parts[0], seen(1, node(1, parts[1], seen(2, node(2, parts[2], end=(0, 1.0))))))
    apart = [(node(turn, part, end=(0, 1.0)),) for turn, part in enumerate(parts)]
    whole, three = flat(log_ratios("sequence", forest((chain,)))), flat(log_ratios("sequence", forest(*apart)))
    assert whole == pytest.approx([1.1 / 6] * 6, abs=1e-6)
    assert three == pytest.approx(whole, abs=1e-6)


def test_a_shared_token_has_a_ratio_for_each_of_its_episodes():
    """A first turn (.2, .4) that goes on with .6 or with (-.2, -.2, -.4, 0).

    Sequences: 1.2 / 3 = .4 and -.2 / 6. Turns: a branch in the middle of turn 0, so that turn 0 of the first path has
    three tokens and that of the second six: the same means. Nodes: each its own.
    """
    below = (node(0, [0.6], end=(0, 1.0)), node(0, [-0.2, -0.2, -0.4, 0.0], end=(1, 0.0)))
    tree = forest((node(0, [0.2, 0.4], *below),))
    expected = [[0.4, -0.2 / 6]] * 2 + [[0.4]] + [[-0.2 / 6]] * 4
    for level in ("sequence", "turn"):
        for found, want in zip(log_ratios(level, tree), expected, strict=True):
            assert found == pytest.approx(want, abs=1e-6)
    assert flat(log_ratios("node", tree)) == pytest.approx([0.3, 0.3, 0.6, -0.2, -0.2, -0.2, -0.2], abs=1e-6)


def test_turns_are_apart_where_sequences_are_not():
    tree = forest((node(0, [0.2, 0.4], seen(1, node(1, [1.0], end=(0, 1.0)), node(1, [-1.0], end=(1, 0.0)))),))
    assert flat(log_ratios("turn", tree)) == pytest.approx([0.3, 0.3, 0.3, 0.3, 1.0, -1.0], abs=1e-6)


def test_the_gradient_of_a_sequence_by_hand():
    """Two episodes, rewards 1 and 0, so A = 1/2 and -1/2; ``sequence`` reduction gives a token of the first 1/2 x 1/3.

    s = exp(.4 / 3) <= 1.3 is not clipped; the loss holds -s A / 2, whose slope by each of three tokens is -s A / 6. The
    second has s = exp(-.5) < .8: clipped, 0. GSPO-token has the same value and, as A is the same at every token, slope.
    """
    tree = forest(CHAIN, (node(0, [-0.5, -0.5], end=(1, 0.0)),))
    for level in ("sequence", "sequence_token"):
        config = policy.read(ConfigDict({**GSPO, "level": level, "reduction": {"kind": "sequence"}}))
        made, batch = made_of(tree, config)
        loss, slope = jax.value_and_grad(
            lambda logp, config=config, made=made, batch=batch: policy.objective(
                config, replace(made, logp=logp), batch
            )[0]
        )(jnp.asarray(made.logp))
        s = exp(0.4 / 3)
        assert float(loss) == pytest.approx(-s * 0.5 / 2 + 0.8 * 0.5 / 2, rel=1e-5)
        np.testing.assert_allclose(slope, [-s * 0.5 / 6] * 3 + [0.0] * 2, rtol=1e-5)


def test_the_ratio_is_at_the_sampling_temperature():
    """B065: T = .6, logits 0, 1, 2 and a sampler at -.203: the ratio is 1. The raw logits would give exp(-.205)."""
    logp, _ = logprob.score(jnp.array([[[0.0, 1.0, 2.0]]]), jnp.array([[2]]), temperature=0.6)
    tree = build(
        [(0, Branch(Kind.PROMPT, 0, [1], None, [Branch(Kind.ANSWER, 0, [2], [-0.2026], episode=0, rewards=[1.0])]))],
        terms=1,
    )
    columns = dict.fromkeys(("entropy", "reference_logp"), np.zeros(2, np.float32))
    columns |= {"logp": np.array([0.0, logp.item()]), "old_logp": tree.behavior_logp}
    for level in LEVELS:
        made, batch = targets_of(tree, CREDIT, policy.read(ConfigDict(GSPO)).reduction, columns, weights=(1.0,))
        assert exp(float(LEVELS[level].function(made, batch)[0, 0])) == pytest.approx(1.0, abs=1e-4)


def test_an_episode_without_tokens_has_a_ratio_of_one_and_no_part():
    """Zero-length response beside an ordinary one."""
    tree = forest((node(0, [0.5, 0.5], end=(0, 1.0)), node(0, [], end=(1, 0.0))))
    for level in LEVELS:
        assert flat(log_ratios(level, tree)) == pytest.approx([0.5, 0.5], abs=1e-6)
