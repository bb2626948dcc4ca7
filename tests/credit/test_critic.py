"""Credit of single tokens: numbers worked by hand, faults of others, and every pair of token and path against loops."""

from __future__ import annotations

import dataclasses
import functools
from math import nan, sqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.config import Call
from rlsearch.credit import registry
from rlsearch.credit.registry import CreditConfig
from rlsearch.credit.slots import Slots
from rlsearch.errors import InputError
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import NONE, Forest, Kind
from rlsearch.tree.pack import in_blocks, pack, pad_nodes
from tests.credit.by_node import estimate
from tests.credit.plain import Table
from tests.credit.twins.critic import Token, tokenwise
from tests.tree.random_forests import ancestors, random_forest

UNUSED = nan  # stands in every slot that holds no token, and must reach nothing
SIZE = {"width": 20, "targets": 9}
WEIGHTS = (1.0, 0.5)
PLAIN = {"whiten": False, "step_reward": False}


@functools.partial(jax.jit, static_argnames=("config", "weights"))
def jitted(nodes, slots: Slots, config: CreditConfig, weights: tuple[float, ...]):
    credit = estimate(
        nodes, config, weights=weights, reduction=Call("token", REDUCTIONS["token"], ()), slots=slots
    )  # fmt: skip

    def pairs(track):
        if track is None:
            return jnp.zeros(())
        node = track.node[slots.node]
        return node if track.decay is None else track.decay[..., None] * node + track.offset[..., None]

    return credit, pairs(credit.advantage), pairs(credit.returns)


class Found:
    """Advantage, return and weight of each (leaf, token) that weighs something."""

    def __init__(self, forest: Forest, config: CreditConfig, value, penalty=None, weights=WEIGHTS):
        def slots(column, fill):
            carried = dataclasses.replace(forest, behavior_logp=np.asarray(column, np.float32))
            rows, used = in_blocks(pack(carried, **SIZE, multiple=8).rows, block=8, floor=4)
            use = (rows.target >= 0) & (np.arange(len(rows.target)) < used)[:, None, None]
            return np.where(use, rows.behavior_logp, np.float32(fill)), use, rows.target_node

        token, use, node = slots(np.arange(len(forest.token_id)), 0)
        given = Slots(node, use, slots(value, UNUSED)[0], None if penalty is None else slots(penalty, UNUSED)[0])
        padded = pad_nodes(forest.nodes, 64, leaves=32, depth=4, fan=8)
        out = jax.tree.map(np.asarray, jitted(padded, given, config, weights))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(out))
        self.credit, advantage, returns = out
        self.advantage, self.returns, self.weight = {}, {}, {}
        leaves = np.flatnonzero(forest.nodes.episode != NONE)
        for where in zip(*np.nonzero(use), strict=True):
            index = node[where]
            below = leaves[(leaves >= index) & (leaves < forest.nodes.end[index])].tolist()
            for column, leaf in enumerate(below):
                if weight := self.credit.weight[index, column]:
                    pair = leaf, int(token[where])
                    self.advantage[pair], self.weight[pair] = advantage[(*where, column)], weight
                    self.returns[pair] = returns[(*where, column)] if returns.ndim else None


def choose(estimator: str, *, drop_equal: bool = False, **options) -> CreditConfig:
    return registry.read(ConfigDict({"estimator": estimator, "drop_equal": drop_equal, **options}))


def line(turns, reward, *, notes=(), episode=0, observed=2, below=()) -> Branch:
    """A prompt, then turns of so many tokens each with an observation between any two; ``below`` the last of them."""
    children, last = list(below), len(turns) - 1
    for number in reversed(range(len(turns))):
        note = {"step_reward": notes[number]} if notes else {}
        here = Branch(Kind.QUERY, number, [1] * turns[number], [-1.0] * turns[number], children, notes=note)
        if number == last and not below:
            here.kind, here.episode, here.rewards = Kind.ANSWER, episode, [reward]
        children = (
            [Branch(Kind.OBSERVATION, number, [2] * observed, children=[here])] if number and observed else [here]
        )
    return Branch(Kind.PROMPT, 0, [0], children=children)


def forest_of(*roots: Branch) -> Forest:
    return build([(0, root) for root in roots], terms=1)


def by_path(forest: Forest, column: dict) -> list[list[float]]:
    """What was found at the sampled tokens of each path, in order."""
    leaves = sorted({leaf for leaf, _ in column})
    return [[float(column[pair]) for pair in sorted(column) if pair[0] == leaf] for leaf in leaves]


def found(estimator: str, *roots: Branch, values=None, penalties=None, returns=False, **options) -> list[list[float]]:
    """``values`` and ``penalties`` of the sampled tokens, in the order of the forest."""
    forest = forest_of(*roots)

    def column(given):
        out = np.full(len(forest.token_id), UNUSED)
        out[forest.sampled] = 0.0 if given is None else given
        return out

    out = Found(
        forest, choose(estimator, **options), column(values), None if penalties is None else column(penalties), (1.0,)
    )  # fmt: skip
    return by_path(forest, out.returns if returns else out.advantage)


def flat(rows: list[list[float]]) -> list[float]:
    return [x for row in rows for x in row]


def test_gae_by_hand():
    """discount 1/2, lambda 1/2, values .5 .2 | .4, reward 1: differences .1 - .5, .2 - .2, 1 - .4; a quarter is passed
    back: A = -.4 + .0375, .15, .6, and the critic learns A + V.
    """
    given = {"values": [0.5, 0.2, 0.4], "discount": 0.5, "lam": 0.5, **PLAIN}
    assert found("gae", line([2, 1], 1.0), **given) == [pytest.approx([-0.3625, 0.15, 0.6])]
    assert found("gae", line([2, 1], 1.0), returns=True, **given) == [pytest.approx([0.1375, 0.35, 1.0])]


def fork() -> Branch:
    """Two tokens that two episodes share, and one more of each; rewards 1 and 0."""
    ends = [Branch(Kind.ANSWER, 1, [1], [-1.0], episode=i, rewards=[1.0 - i]) for i in range(2)]
    return line([2], nan, below=ends)


def test_gae_of_a_shared_turn_by_hand():
    """As above, and for the second episode with value .8 and reward 0: differences -.4, .4 - .2, -.8, so A = -.4 + 0,
    .2 - .2, -.8. The shared tokens are worth something else to each.
    """
    given = {"values": [0.5, 0.2, 0.4, 0.8], "discount": 0.5, "lam": 0.5, **PLAIN}
    first, second = found("gae", fork(), **given)
    assert first == pytest.approx([-0.3625, 0.15, 0.6])
    assert second == pytest.approx([-0.4, 0.0, -0.8], abs=1e-6)


def test_the_node_column_is_the_advantage_of_the_last_token():
    forest = forest_of(fork())
    value = np.zeros(len(forest.token_id))
    value[forest.sampled] = [0.5, 0.2, 0.4, 0.8]
    for whiten in (False, True):
        config = choose("gae", discount=0.5, lam=0.5, whiten=whiten, step_reward=False)
        out = Found(forest, config, value, weights=(1.0,))
        tokens = np.flatnonzero(forest.sampled)
        assert out.credit.advantage.node[1, :2].tolist() == [
            pytest.approx(out.advantage[leaf, int(tokens[1])], abs=1e-6) for leaf in (2, 3)
        ]


@pytest.mark.parametrize("estimator", ["gae", "lambda_return"])
def test_observations_do_not_discount(estimator):
    """B092: discount .5, mask 1 0 0 1, reward 1 at the end: the first token sees .5, not .125."""
    options = {"discount": 0.5, "lam": 1.0, **PLAIN}
    assert found(estimator, line([1, 1], 1.0), **options) == [pytest.approx([0.5, 1.0])]


def test_returns_are_not_reset_at_observations():
    """B094: rewards 0 0 1, mask 1 0 1, discount .5: .5 and 1 where there is a token, and not 0 and 1. With an episode
    of reward 0 beside it REINFORCE++ standardises .5, 1, 0: mean .5, deviation sqrt(1/6).
    """
    options = {"discount": 0.5, "lam": 1.0, **PLAIN}
    assert found("lambda_return", line([1, 1], 1.0, observed=1), **options) == [pytest.approx([0.5, 1.0])]
    chains = line([1, 1], 1.0, observed=1), line([1], 0.0, episode=1)
    step = 0.5 / sqrt(1 / 6)
    assert found("reinforce_plus_plus", *chains, discount=0.5) == [
        pytest.approx([0, step], abs=1e-6),
        pytest.approx([-step]),
    ]


@pytest.mark.parametrize("estimator", ["gae", "lambda_return", "turn_gae"])
def test_rewards_of_what_the_policy_did_not_write_do_not_count(estimator):
    """B095: mask 1 0, rewards 0 1: score 0. Here at an observation, and at a turn that has no tokens."""
    root = line([1, 0, 1], 0.0, notes=[0.0, 1.0, 0.0])
    observation = root.children[0].children[0]
    assert observation.kind == Kind.OBSERVATION
    observation.notes = {"step_reward": 1.0}
    options = {"discount": 1.0, "lam": 1.0, "whiten": False, "step_reward": True}
    assert found(estimator, root, **options) == [[0.0, 0.0]]
    root.children[0].notes = {"step_reward": 1.0}
    assert found(estimator, root, **options) == [[1.0, 0.0]]


def test_values_at_observations_are_not_read():
    """B019: mask 1 1 0 0 1, values 0 0 100 -100 0, reward 1 at the end: the same as three tokens in a row."""
    apart, options = line([2, 1], 1.0), {"discount": 0.9, "lam": 0.95, **PLAIN}
    forest = forest_of(apart)
    value = np.zeros(len(forest.token_id))
    value[forest.token_node == 2] = [100.0, -100.0]
    out = Found(forest, choose("gae", **options), value, weights=(1.0,))
    assert by_path(forest, out.advantage) == found("gae", line([3], 1.0), **options)
    assert by_path(forest, out.advantage) == [pytest.approx([0.855**2, 0.855, 1.0])]


def test_turns_as_steps_by_hand():
    """discount 1/2, lambda 1/2, values .5 (9) | .4, rewards .1 and 1: the second turn is worth 1 - .4 = .6, the first
    .1 + .2 - .5 + .15 = -.05; what the critic says within a turn is not read. Returns .45 and 1.
    """
    given = {"values": [0.5, 9.0, 0.4, 9.0], "discount": 0.5, "lam": 0.5, "whiten": False, "step_reward": True}
    root = line([2, 2], 1.0, notes=[0.1, 0.0])
    assert found("turn_gae", root, **given) == [pytest.approx([-0.05, -0.05, 0.6, 0.6])]
    assert found("turn_gae", root, returns=True, **given) == [pytest.approx([0.45, 0.45, 1.0, 1.0])]


def test_a_turn_that_branches_is_one_step():
    """Value .5 before the shared token; the two ends of the turn earn 1 and 0 with no discount between."""
    ends = [Branch(Kind.ANSWER, 0, [1], [-1.0], episode=i, rewards=[1.0 - i]) for i in range(2)]
    root = line([1], nan, below=ends)
    given = {"values": [0.5, 9.0, 9.0], "discount": 0.5, "lam": 0.5, **PLAIN}
    assert found("turn_gae", root, **given) == [pytest.approx([0.5, 0.5]), pytest.approx([-0.5, -0.5])]


def test_reinforce_plus_plus_by_hand():
    """Outcome 1, KL .1 .2 .3: 1 less the KL from each token on is .4 .5 .7; beside it outcome 0, KL .2: -.2. Mean .35,
    deviation sqrt((.0025 + .0225 + .1225 + .3025) / 4).
    """
    chains = line([2, 1], 1.0), line([1], 0.0, episode=1)
    deviation = sqrt(0.45 / 4)
    expected = [x / deviation for x in (0.05, 0.15, 0.35, -0.55)]
    out = found("reinforce_plus_plus", *chains, penalties=[0.1, 0.2, 0.3, 0.2], discount=1.0)
    assert flat(out) == pytest.approx(expected, rel=1e-5)


def test_reinforce_plus_plus_counts_an_episode_for_each_of_its_tokens():
    """Outcomes 1 (three tokens) and 0 (one): mean 3/4, deviation sqrt(3)/4."""
    out = found("reinforce_plus_plus", line([2, 1], 1.0), line([1], 0.0, episode=1), discount=1.0)
    assert flat(out) == pytest.approx([1 / sqrt(3)] * 3 + [-sqrt(3)], rel=1e-5)


def test_whitening_counts_a_shared_token_once_for_each_path():
    """Differences with discount 1 and lambda 0: 0, .4 - .2 and 0, .8 - .2 at the shared tokens, .6 and -.8 at the
    ends: six numbers of mean 0.1, not five. The critic's targets stay as they are.
    """
    values, shared = [0.2, 0.2, 0.4, 0.8], {"discount": 1.0, "lam": 0.0, "step_reward": False}
    numbers = np.array([0.0, 0.2, 0.6, 0.0, 0.6, -0.8])
    out = found("gae", fork(), values=values, whiten=True, **shared)
    assert flat(out) == pytest.approx((numbers - numbers.mean()) / numbers.std(), rel=1e-5)
    targets = [found("gae", fork(), values=values, whiten=w, returns=True, **shared) for w in (True, False)]
    assert targets[0] == targets[1]


@pytest.mark.parametrize(("estimator", "options"), [
    ("gae", {"discount": 1.0, "lam": 1.0, "whiten": True, "step_reward": False}),
    ("lambda_return", {"discount": 1.0, "lam": 0.5, "whiten": True, "step_reward": False}),
    ("turn_gae", {"discount": 1.0, "lam": 1.0, "whiten": True, "step_reward": False}),
    ("reinforce_plus_plus", {"discount": 1.0}),
])  # fmt: skip
@pytest.mark.parametrize("penalties", [None, 0.0])
@pytest.mark.parametrize("reward", [0.1, 1 / 3])
def test_equal_numbers_are_whitened_to_exactly_nothing(estimator, options, penalties, reward):
    """A critic that is right everywhere or says one thing everywhere leaves nothing to compare."""
    chains = line([3, 2], reward), line([1], reward, episode=1)
    for value in (0.0, reward) if estimator != "lambda_return" else (reward,):
        assert flat(found(estimator, *chains, values=value, penalties=penalties, **options)) == [0.0] * 6


def test_groups_without_a_signal():
    """Where rewards are equal a critic's episodes take part; REINFORCE++'s do where something in the batch differs."""
    equal = forest_of(line([1], 1.0), line([1], 1.0, episode=1))
    value = np.zeros(len(equal.token_id))
    kept = Found(equal, choose("gae", drop_equal=True, discount=1.0, lam=1.0, **PLAIN), value, weights=(1.0,))
    assert by_path(equal, kept.advantage) == [[1.0], [1.0]]
    plus = choose("reinforce_plus_plus", drop_equal=True, discount=1.0)
    assert not Found(equal, plus, value, weights=(1.0,)).credit.weight.any()
    other = forest_of(line([1], 1.0), line([1], 0.0, episode=1))
    assert by_path(other, Found(other, plus, value, weights=(1.0,)).advantage) == [[1.0], [-1.0]]


@pytest.mark.parametrize("estimator", ["gae", "lambda_return", "turn_gae"])
def test_what_cannot_be_scored_or_has_no_tokens(estimator):
    """It has no advantage and no part in the whitening of the others: 1 and 0 are worth 1 and -1."""
    chains = line([1], 1.0), line([2, 2], nan, episode=1), line([0], 1.0, episode=2), line([1], 0.0, episode=3)
    options = {"discount": 1.0, "lam": 1.0, "whiten": True, "step_reward": False}
    assert found(estimator, *chains, **options) == [pytest.approx([1.0]), pytest.approx([-1.0])]
    assert found(estimator, line([0], 1.0), **options) == []
    assert found(estimator, line([2, 2], nan), **options) == []
    assert found(estimator, line([1], 1.0), **options) == [[0.0]]


def test_what_is_needed_is_asked_for():
    forest = forest_of(line([1], 1.0))
    config = choose("gae", discount=1.0, lam=1.0, **PLAIN)
    with pytest.raises(ValueError, match="needs the batch's tokens"):
        estimate(forest.nodes, config, weights=(1.0,), reduction=REDUCTIONS["token"])
    tokens = Slots(np.zeros((1, 1, 1), np.int32), np.ones((1, 1, 1), bool), None, None)
    with pytest.raises(ValueError, match="needs a critic's values"):
        estimate(forest.nodes, config, weights=(1.0,), reduction=REDUCTIONS["token"], slots=tokens)
    with pytest.raises(ValueError, match="with a discount needs the batch's tokens"):
        estimate(
            forest.nodes, choose("reinforce_plus_plus", discount=0.5), weights=(1.0,), reduction=REDUCTIONS["token"]
        )


def test_a_note_is_needed_where_an_option_asks_for_it():
    for step_reward in (False, True):
        config = choose("gae", discount=1.0, lam=1.0, whiten=False, step_reward=step_reward)
        assert config.notes == (("step_reward",) if step_reward else ())
    with pytest.raises(InputError, match="reads the notes step_reward, which nothing writes"):
        registry.check_notes(config, [])


SIZES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1), "trees": st.integers(1, 3), "depth": st.integers(1, 3),
        "branching": st.integers(1, 2), "longest": st.integers(1, 4), "contexts": st.sampled_from([0.0, 0.4]),
    }
)  # fmt: skip
OPTIONS = {
    "gae": {"discount": 0.9, "lam": 0.8, "whiten": True, "step_reward": True},
    "gae plain": {"discount": 1.0, "lam": 0.95, **PLAIN},
    "gae of nothing later": {"discount": 0.5, "lam": 0.0, **PLAIN},
    "lambda_return": {"discount": 0.9, "lam": 0.7, "whiten": True, "step_reward": True},
    "turn_gae": {"discount": 0.9, "lam": 0.8, "whiten": True, "step_reward": True},
    "turn_gae plain": {"discount": 0.7, "lam": 0.9, **PLAIN},
    "reinforce_plus_plus": {"discount": 1.0},
    "reinforce_plus_plus discounted": {"discount": 0.8},
}


@pytest.mark.parametrize("case", OPTIONS)
@settings(max_examples=12)
@given(sizes=SIZES, penalised=st.booleans())
def test_every_token_of_every_path_against_a_loop(case, sizes, penalised):
    forest, rng = random_forest(**sizes), np.random.default_rng(sizes["seed"])
    notes = rng.choice([0.0, 0.0, 1.0, -0.5], size=len(forest.nodes.end)).astype(np.float32)
    # Turns of one or two levels, so that a turn may be spread over nodes.
    nodes = dataclasses.replace(forest.nodes, notes={"step_reward": notes}, turn=forest.nodes.turn // 2)
    forest = dataclasses.replace(forest, nodes=nodes)
    value, penalty = rng.normal(size=(2, len(forest.token_id))).astype(np.float32)
    penalty = penalty * penalised
    out = Found(forest, choose(case.split()[0], **OPTIONS[case]), value, penalty)
    table = Table(nodes, WEIGHTS)
    tokens = {
        leaf: [t for t in np.flatnonzero(forest.sampled) if forest.token_node[t] in ancestors(nodes.parent, leaf)]
        for leaf in table.leaves
    }
    paths = {
        leaf: [Token(int(n), table.turn[n], float(value[t]), float(penalty[t])) for t in row for n in
               [forest.token_node[t]]]
        for leaf, row in tokens.items()
    }  # fmt: skip
    advantages, returns, _ = tokenwise(case.split()[0], table, paths, **OPTIONS[case])
    pairs = [(leaf, int(t)) for leaf in advantages for t in tokens[leaf]]
    assert set(pairs) == set(out.advantage)
    expected = dict(zip(pairs, [x for row in advantages.values() for x in row], strict=True))
    for pair in pairs:
        assert out.advantage[pair] == pytest.approx(expected[pair], abs=2e-5, rel=2e-5), pair
    if returns is not None:
        for pair, target in zip(pairs, [x for row in returns.values() for x in row], strict=True):
            assert out.returns[pair] == pytest.approx(target, abs=2e-5, rel=2e-5), pair
