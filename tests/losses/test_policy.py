"""The objective: numbers by hand, what masked targets may not do, and choices that are refused."""

from __future__ import annotations

from dataclasses import fields, replace
from math import exp, log

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.credit import registry
from rlsearch.errors import InputError
from rlsearch.losses import policy
from rlsearch.losses import targets as made_targets
from rlsearch.losses.targets import Given, Targets
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind
from tests.losses.forests import targets_of
from tests.training.cases import CLIP

SECTION = {
    "level": "token", "clip": {"kind": "ppo", "low": 0.2, "high": 0.3}, "mismatch": None,
    "reduction": {"kind": "token"},
    "kl": {"coefficient": 0.1, "estimator": "k3", "place": "loss", "weights": {"kind": "uniform"}}, "entropy": 0.05,
    "terms": (),
}  # fmt: skip
CONFIG = policy.read(ConfigDict(SECTION))
COLUMNS = ("logp", "entropy", "old_logp", "behavior_logp", "reference_logp")


def targets(**columns) -> Targets:
    """One row of targets in use; what is not given is 0 (weights 1). Advantages and weights may be of many episodes."""
    size = len(next(iter(columns.values())))
    found = {name: np.zeros((1, size), np.float32) for name in (*COLUMNS, "spread")}
    found |= {"advantage": np.zeros((1, size, 1), np.float32), "weight": np.ones((1, size, 1), np.float32)}
    for name, column in columns.items():
        column = np.asarray(column, np.float32)[None]
        found[name] = column[..., None] if name in ("advantage", "weight") and column.ndim == 2 else column
    node, use = np.zeros((1, size), np.int32), np.ones((1, size), bool)
    return Targets(node=node, use=use, value=None, old_value=None, returns=None, **found)


def loss(config=CONFIG, **columns) -> float:
    return float(policy.objective(config, targets(**columns), None)[0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.5, 1.0, 1.3), (0.5, 1.0, 0.5), (1.5, -1.0, -1.5), (0.5, -1.0, -0.8), (1.1, 2.0, 2.2), (1.0, -2.0, -2.0)],
)
def test_each_side_of_each_clip_by_hand(ratio, advantage, expected):
    plain = replace(CONFIG, kl=None)
    assert loss(plain, logp=[log(ratio)], advantage=[advantage]) == pytest.approx(-expected, rel=1e-5)


def test_a_clipped_token_has_no_gradient():
    plain = replace(CONFIG, kl=None)

    def of(logp):
        return policy.objective(plain, replace(targets(logp=[0, 0], advantage=[1, -1]), logp=logp), None)[0]

    gradient = jax.grad(of)
    assert gradient(jnp.log(jnp.array([[1.5, 0.5]])))[0].tolist() == [0, 0]
    assert gradient(jnp.log(jnp.array([[0.5, 1.5]])))[0].tolist() == pytest.approx([-0.5, 1.5])


def test_a_token_of_a_good_and_a_bad_episode():
    """Ratio 1.5, advantages +1 and -1 of weight 1/2: -(1.3 - 1.5) / 2. Summed before clipping they would vanish."""
    found = loss(replace(CONFIG, kl=None), logp=[log(1.5)], advantage=[[1.0, -1.0]], weight=[[0.5, 0.5]])
    assert found == pytest.approx(0.1, rel=1e-5)


def test_kl_and_entropy_weigh_as_their_token():
    """By the sum of the weights of all episodes through the token."""
    found = loss(
        logp=[-1.0, -1.0], old_logp=[-1.0, -1.0], reference_logp=[-0.5, -1.0], entropy=[2.0, 1.0],
        advantage=[[0.0, 0.0], [0.0, 0.0]], weight=[[0.05, 0.2], [0.75, 0.0]],
    )  # fmt: skip
    assert found == pytest.approx(0.1 * 0.25 * (exp(0.5) - 1.5) - 0.05 * (0.25 * 2.0 + 0.75 * 1.0), rel=1e-5)


def test_a_penalty_in_the_reward_is_not_in_the_loss():
    config = policy.read(ConfigDict({**SECTION, "kl": {**SECTION["kl"], "place": "reward"}, "entropy": 0.0}))
    made = targets(logp=[-1.0], old_logp=[-1.0], reference_logp=[-0.5])
    found, sums = policy.objective(config, made, None)
    assert float(found) == 0
    assert float(sums["kl"]) == pytest.approx(exp(0.5) - 1.5, rel=1e-5)


def test_metrics_are_sums_over_targets():
    """Clipped are the first, good and up by e^.5, and the second, bad for one of its episodes and down by e^-.5."""
    _, sums = policy.objective(
        CONFIG,
        targets(logp=[-1.0, -2.0, -1.0], old_logp=[-1.5, -1.5, -1.1], behavior_logp=[-1.5, -1.5, -1.2],
                entropy=[1.0, 2.0, 3.0], reference_logp=[-0.5, -2.0, -1.0],
                advantage=[[1.0, 0.0], [1.0, -1.0], [1.0, 0.0]], weight=np.ones((3, 2))),
        None,
    )  # fmt: skip
    assert {name: float(value) for name, value in sums.items()} == pytest.approx(
        {"targets": 3, "entropy": 6, "logp_gap": 1.2, "clip_fraction": 2, "kl": exp(0.5) - 1.5}, rel=1e-5
    )


def episode(*turns: int) -> Branch:
    """p p and then turns of the policy of some length, three tokens of information after each but the last."""
    below: list[Branch] = []
    for number, length in reversed(list(enumerate(turns))):
        turn = Branch(Kind.QUERY, number, [7] * length, [-1.0] * length, below)
        below = [turn] if number == 0 else [Branch(Kind.OBSERVATION, number, [8] * 3, None, [turn])]
    return Branch(Kind.PROMPT, 0, [5, 6], None, below)


def ended(root: Branch, number: int, reward: float) -> Branch:
    leaf = root
    while leaf.children:
        leaf = leaf.children[0]
    leaf.episode, leaf.rewards = number, [reward]
    return root


GROUP = [(0, ended(episode(3, 2), 0, 1.0)), (0, ended(episode(2, 2), 1, 0.0))]


SENTINELS = (50.0, 1.0, -6.0, -np.inf, np.inf, np.nan)


@pytest.mark.parametrize(
    "level",
    ["token", "turn", "sequence", *(pytest.param(x, marks=pytest.mark.slow) for x in ("node", "sequence_token"))],
)
def test_masked_targets_reach_neither_loss_nor_metrics_nor_gradients(level):
    """B001, B082, B084: p p a a a i i i a a with anything at all on the p's and the i's, in one column or in all."""
    forest = build(GROUP, terms=1)
    credit = registry.read(ConfigDict({"estimator": "grpo", "scale": True, "drop_equal": True}))
    config = policy.read(ConfigDict({**SECTION, "level": level, "mismatch": {"kind": "truncated", "cap": 2.0}}))
    rng = np.random.default_rng(0)
    clean = {name: rng.uniform(-1.5, -0.5, len(forest.token_id)).astype(np.float32) for name in COLUMNS}
    _, batch = targets_of(forest, credit, config.reduction, clean, weights=(1.0,))
    use = forest.sampled
    assert use.tolist()[:10] == [False] * 2 + [True] * 3 + [False] * 3 + [True] * 2

    @jax.jit
    def run(columns):
        given = Given(forest.token_node, use, *(columns[x] for x in ("behavior_logp", "old_logp", "reference_logp")),
                      None, None, None)  # fmt: skip

        def of(logp, entropy):
            made = made_targets.make(batch, given, logp=logp, entropy=entropy, value=None)
            return policy.objective(config, made, batch)

        return jax.value_and_grad(of, argnums=(0, 1), has_aux=True)(columns["logp"], columns["entropy"])

    expected = jax.tree.map(np.asarray, run(clean))
    assert expected[0][0] != 0
    for gradient in expected[1]:
        assert (gradient != 0).tolist() == use.tolist()
    for sentinel in SENTINELS:
        spoiled = {name: np.where(use, column, np.float32(sentinel)) for name, column in clean.items()}
        for columns in (spoiled, *({**clean, name: spoiled[name]} for name in COLUMNS)):
            jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, run(columns)), expected)


@pytest.mark.parametrize("name", sorted(CLIP))
@settings(max_examples=5)
@given(st.integers(0, 999))
def test_parts_of_a_batch_add_up(name, seed):
    """Weights hold the reduction, so that accumulation cannot change it."""
    config = policy.read(ConfigDict({**SECTION, "clip": CLIP[name]}))
    rng = np.random.default_rng(seed)
    columns = {name: rng.uniform(-1, 0, 10).astype(np.float32) for name in COLUMNS}
    columns |= {"advantage": rng.normal(size=(10, 2)), "weight": rng.uniform(size=(10, 2))}
    parts = [{name: column[part] for name, column in columns.items()} for part in (slice(4), slice(4, None))]
    assert sum(loss(config, **part) for part in parts) == pytest.approx(loss(config, **columns), rel=1e-4, abs=1e-5)


def test_tokens_of_dropped_groups_are_in_no_metric():
    """Beside a group of rewards 1 and 0 one of 1 and 1, which is dropped: the nine targets of the first are counted."""
    same = [(1, ended(episode(4, 1), 2, 1.0)), (1, ended(episode(2, 6), 3, 1.0))]
    forest = build(GROUP + same, terms=1)
    credit = registry.read(ConfigDict({"estimator": "grpo", "scale": True, "drop_equal": True}))
    ones = dict.fromkeys(COLUMNS, -np.ones(len(forest.token_id)))
    made, batch = targets_of(forest, credit, CONFIG.reduction, ones, weights=(1.0,))
    assert made.use.sum() == policy.objective(CONFIG, made, batch)[1]["targets"] == 9


def test_nothing_in_use_is_exactly_nothing():
    """Every column zero and every weight zero: finite, and no gradient."""
    made = replace(targets(logp=[0.0] * 4, weight=[0.0] * 4), use=np.zeros((1, 4), bool))
    found, gradient = jax.value_and_grad(lambda logp: policy.objective(CONFIG, replace(made, logp=logp), None)[0])(
        made.logp
    )
    assert float(found) == 0
    assert not np.asarray(gradient).any()


def test_supervised_is_the_mean_over_the_whole_batch():
    """Lengths 2 (loss 1) and 8 (loss 0), each in a part of its own: .2; the mean of the parts' means would be .5."""
    use, count = np.ones((1, 8), bool), jnp.float32(10)
    first, use_first = np.full((1, 8), -1.0, np.float32), np.arange(8)[None] < 2
    total = policy.supervised(logp=first, use=use_first, count=count)
    total += policy.supervised(logp=0 * first, use=use, count=count)
    assert float(total) == pytest.approx(0.2)
    spoiled = np.where(use_first, first, np.nan)
    assert float(policy.supervised(logp=spoiled, use=use_first, count=count)) == pytest.approx(0.2)


KL = SECTION["kl"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"levels": "token"}, r"config\.loss\.levels: unknown key; did you mean 'level'\?"),
        ({"level": "sequences"}, r"config\.loss\.level 'sequences': unknown; did you mean 'sequence'\?"),
        ({"reduction": {"kind": "tokens"}}, r"config\.loss\.reduction\.kind 'tokens': unknown; did you mean 'token'\?"),
        ({"reduction": None}, r"config\.loss\.reduction is None; name one of"),
        ({"reduction": {"kind": "constant", "length": 0.0}}, r"length 0\.0 must be above 0"),
        ({"reduction": {"kind": "token", "length": 3.0}}, r"config\.loss\.reduction\.length: token takes no such key"),
        ({"kl": {**KL, "estimator": "k4"}}, r"config\.loss\.kl\.estimator 'k4': unknown"),
        ({"kl": {**KL, "place": "lose"}}, r"config\.loss\.kl\.place 'lose': unknown; did you mean 'loss'\?"),
        ({"kl": {**KL, "coefficient": -0.1}}, r"config\.loss\.kl\.coefficient -0\.1 is negative"),
        ({"kl": {"coefficient": 0.1}}, r"config\.loss\.kl: missing weights"),
        ({"kl": {**KL, "weights": {"kind": "critical", "power": 0.0, "vocabulary": 9}}}, r"power 0\.0 must be above 0"),
        ({"kl": {**KL, "target": 1.0}}, r"config\.loss\.kl\.target: unknown key"),
        ({"clip": {"kind": "ppo", "low": 1.5, "high": 0.3}}, r"low 1\.5 must lie in \[0, 1\]"),
        ({"clip": {"kind": "ppo", "low": 0.2, "high": -0.1}}, r"high -0\.1 must be 0 or more"),
        ({"clip": {"kind": "dual", "low": 0.2, "high": 0.2, "bound": 0.9}}, r"bound 0\.9 must be above 1"),
        ({"clip": {"kind": "ppo", "low": 0.2}}, r"config\.loss\.clip: ppo misses high"),
        ({"mismatch": {"kind": "truncated", "cap": 0.0}}, r"cap 0\.0 must be above 0"),
        ({"mismatch": {"kind": "masked", "low": 2.0, "high": 1.0}}, r"low 2\.0 must be 0 or more, and less than high"),
        ({"clip": None}, r"neither a clip nor terms"),
    ],
)
def test_choices_that_cannot_be_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        policy.read(ConfigDict({**SECTION, **change}))


TERM = ({"kind": "nothing"},)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"clip": None, "terms": TERM, "mismatch": {"kind": "truncated", "cap": 2.0}},
            r"'truncated' corrects the clip",
        ),
        ({"clip": None, "terms": TERM, "level": "sequence"}, r"level 'sequence' is that of the clip's ratio"),
        ({"clip": {"kind": "reinforce"}, "level": "sequence_token"}, r"clip 'reinforce' has no ratio"),
    ],
)
def test_choices_that_would_have_no_effect_are_refused(monkeypatch, change, message):
    """B080: an option is never ignored in silence."""
    nothing = policy.TERMS | {"nothing": _Nothing}
    monkeypatch.setattr(policy, "TERMS", nothing)
    with pytest.raises(InputError, match=message):
        policy.read(ConfigDict({**SECTION, **change}))
    assert policy.read(ConfigDict({**SECTION, "clip": None, "terms": TERM})).clip is None


class _Nothing:
    """A term that is 0."""

    whole = reference = critic = False

    @staticmethod
    def function(targets, batch):
        return jnp.float32(0.0)


def test_a_key_that_is_missing_is_named():
    for key in SECTION:
        with pytest.raises(InputError, match=rf"config\.loss: missing {key};"):
            policy.read(ConfigDict({name: value for name, value in SECTION.items() if name != key}))


def test_targets_name_every_column_that_a_sentinel_could_stand_in():
    """The masked columns above are all that a token's own scores are read from; a new one has to join them."""
    names = {field.name for field in fields(Targets)}
    assert names - {"node", "use", "value", "old_value", "advantage", "returns", "weight", "spread"} == set(COLUMNS)
