"""A critic on packed forests, over several updates, and through the stage: trained, saved, restored."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from hypothesis import example, given, settings
from ml_collections import ConfigDict

from rlsearch import settings as run_settings
from rlsearch.errors import InputError
from rlsearch.models import sharding, value
from rlsearch.training import reinforce
from rlsearch.training.checkpoint import Checkpoints
from rlsearch.training.state import fresh
from rlsearch.training.step import make_policy_step, make_values
from rlsearch.training.workdir import Workdir
from rlsearch.tree.build import Branch, build
from rlsearch.tree.forest import Kind
from tests import small
from tests.credit.by_node import by_node
from tests.credit.twins.critic import Token, gae
from tests.training import cases, critics, per_path, stages, steps
from tests.training.critics import CREDIT, VALUE
from tests.training.stages import Fuse
from tests.training.test_exactness import BUSHY, SIZES, SPLIT
from tests.tree.random_forests import random_forest

TERMS = {"terms": (VALUE,)}
CASES = {
    "gae": ({"estimator": "gae", **CREDIT}, TERMS),
    "turns": (
        {"estimator": "turn_gae", **CREDIT, "whiten": True},
        {**TERMS, "level": "sequence", "reduction": cases.REDUCTION["sequence"], "kl": None},
    ),
    "whitened, less the KL": (
        {"estimator": "gae", **CREDIT, "whiten": True},
        {**TERMS, "kl": cases.kl("k1", "reward"), "reduction": cases.REDUCTION["node"]},
    ),
    "returns": ({"estimator": "lambda_return", **CREDIT}, {**TERMS, "level": "turn"}),
    "turns less the KL": ({"estimator": "turn_gae", **CREDIT}, {**TERMS, "kl": cases.kl("k2", "reward", "critical")}),
    "no critic": (
        {"estimator": "reinforce_plus_plus", "discount": 0.9, "drop_equal": True},
        {"kl": cases.kl("k1", "reward")},
    ),
}
PICKED = [  # one pass over the blocks, and two
    (name, trunk)
    for trunk in value.TRUNKS
    for name in (CASES if trunk == "own" else ("gae", "turns", "whitened, less the KL"))
]
FAST = {("gae", "own"), ("gae", "shared")}


def step(name: str, trunk: str = "own"):
    return steps.make(*CASES[name], trunk=trunk)


def assert_exact(forest, config, mesh, **shape) -> None:
    critic = cases.critic(config.critic_trunk) if config.critic else None
    found = steps.loss_and_gradient(*critics.models(), forest, config, mesh, critic=critic, **shape)
    steps.assert_equal(found, critics.loss_and_gradient(forest, config))


@pytest.mark.parametrize(
    ("name", "trunk"), [pytest.param(*pair, marks=() if pair in FAST else pytest.mark.slow) for pair in PICKED]
)
@settings(max_examples=5)
@given(sizes=SIZES)
@example(sizes=BUSHY)
def test_packed_equals_one_path_at_a_time(name, trunk, sizes):
    """Policy and critic: the loss, and the gradient by the parameters of both.

    Where they share a trunk it has the gradient of both, or of the policy's objective alone where that is stopped.
    """
    assert_exact(random_forest(**sizes), step(name, trunk), steps.mesh(), **SPLIT)


def test_a_shared_trunk_learns_from_the_critic_and_a_stopped_one_does_not():
    """The same forest under each; beside its own trunk a critic has a gradient there, on the policy's it has none."""
    forest, found = random_forest(**BUSHY), {}
    for trunk in value.TRUNKS:
        config = steps.make(*CASES["gae"], trunk=trunk)
        critic = cases.critic(trunk)
        _, found[trunk] = steps.loss_and_gradient(
            *critics.models(), forest, config, steps.mesh(), critic=critic, **SPLIT
        )
    trunks = {name: jax.tree.leaves(gradient["policy"]["blocks"]) for name, gradient in found.items()}
    assert set(found["shared"]["critic"]) == set(found["stopped"]["critic"]) == {"value"}
    for shared, stopped in zip(trunks["shared"], trunks["stopped"], strict=True):
        assert np.abs(shared - stopped).max() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "trunk"), [("gae", "own"), ("turns", "own"), ("gae", "shared"), ("turns", "stopped")])
def test_any_mesh(name, trunk):
    mesh = steps.mesh(data=2, fsdp=2, model=2)
    assert_exact(random_forest(**BUSHY), step(name, trunk), mesh, **{**SPLIT, "block": 8})


def toy():
    """Two episodes of three turns with observations between them, rewards 1 and 0."""

    def chain(episode):
        rng, below = np.random.default_rng(episode), []
        for turn in reversed(range(3)):
            here = Branch(Kind.QUERY, turn, rng.integers(29, size=2).tolist(), [-3.4, -3.0], below)
            if turn == 2:
                here.kind, here.episode, here.rewards = Kind.ANSWER, episode, [1.0 - episode, 0.0]
            below = [Branch(Kind.OBSERVATION, turn, rng.integers(29, size=3).tolist(), children=[here])]
        return Branch(Kind.PROMPT, 0, [7, 8], children=below)

    return build([(0, chain(episode)) for episode in range(2)], terms=2)


def test_two_updates_against_a_loop():
    """B097: PPO over several turns. At each update of policy and critic, advantages and returns are what a loop makes
    of the critic's values; an update that is given the first ones has the credit of the first.
    """
    forest, config, mesh = toy(), step("gae"), steps.mesh()
    rows, used, nodes = steps.batch(forest, **SPLIT)
    sgd, (policy, reference) = optax.sgd(0.1), critics.models()
    update = make_policy_step(config, sgd, mesh, critic_optimizer=sgd)
    state = fresh(policy, sgd, mesh, critic=fresh(cases.critic(), sgd, mesh))
    token_id, sampled, paths, leaves = per_path.lay_out(forest, forest.behavior_logp)
    reference = jax.device_put(reference, sharding.shard(reference, mesh))
    rows = sharding.to_global(rows, mesh)
    credits, first = [], make_values(config)(state.critic.params, rows, used)
    for old_value in (None, None, first):
        said = np.asarray(per_path._values(state.critic.params, config.model, token_id))
        before = jax.device_get((state.params, state.critic.params))
        state, metrics, credit = update(state, reference, rows, used, nodes, None, old_value)
        assert bool(metrics["finite"])
        assert moved(before[0], state.params)
        assert moved(before[1], state.critic.params)
        turned = by_node(credit, nodes.paths)
        credits.append(jax.device_get((turned.advantage, turned.returns)))
        if old_value is not None:
            continue
        for row in range(len(leaves)):
            where = sampled[row]
            path = [Token(0, 0, float(v), 0.0) for v in said[row, where]]
            expected = gae(path, [0.0] * 5 + [1.0 - row], discount=0.9, lam=0.8)
            for track, column in zip(credits[-1], expected, strict=True):
                found = track.decay[..., None] * track.node[rows.target_node] + track.offset[..., None]
                use = np.asarray(rows.target >= 0) & (np.arange(len(rows.target)) < used)[:, None, None]
                own = np.isin(np.asarray(rows.target_node), paths.node[row][where]) & use
                assert sorted(found[own][:, 0].tolist()) == pytest.approx(sorted(column), abs=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), credits[2], credits[0])
    assert np.abs(credits[1][0].node - credits[0][0].node).max() > 1e-3
    assert (int(state.step), int(state.critic.step)) == (3, 3)


def moved(one, other) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any((np.asarray(a) != np.asarray(b)).any() for a, b in pairs)


def config(trunk: str = "own", **changes):
    """The small run with a critic that learns ten times as fast as the policy."""
    made = small.config(**{"rl.steps": 3, "rl.checkpoint_every": 1, "rl.snapshot_every": 2, **changes})
    made.credit = ConfigDict({"estimator": "gae", **CREDIT, "whiten": True})
    made.loss.terms = (VALUE,)
    made.rl.critic_trunk = trunk
    made.rl.critic_optimizer = ConfigDict(made.rl.optimizer.to_dict())
    made.rl.critic_optimizer.learning_rate = 10 * made.rl.optimizer.learning_rate
    return made


def learn(path: Path, fuse: Fuse, patch, **changes):
    workdir = Workdir(path, writes=True)
    made = config(**changes)
    workdir.open(made)
    patch.setattr(reinforce, "make_optimizer", stages.optimizer)
    patch.setattr(reinforce, "make_policy_step", stages.policy_step)
    patch.setattr(Checkpoints, "save", fuse.after("checkpoint", Checkpoints.save))
    state, _ = stages.learn(run_settings.read(made), small.warmed().params, workdir, fuse)
    return jax.device_get(state), stages.files(path)


@pytest.mark.slow
@pytest.mark.parametrize("trunk", value.TRUNKS)
def test_a_critic_is_trained_saved_and_restored(tmp_path, trunk):
    """An interrupted run ends bit for bit where a straight one does, its critic and the critic's optimizer too."""
    with pytest.MonkeyPatch.context() as patch:
        straight, files = learn(tmp_path / "straight", Fuse(), patch, trunk=trunk)
    start = small.warmed().params
    assert (int(straight.step), int(straight.critic.step)) == (3, 3)
    assert np.abs(straight.critic.params["value"]["kernel"]).max() > 0
    assert set(straight.critic.params) == ({"value"} if trunk != "own" else {*value.TRUNK, "value"})
    assert trunk != "own" or moved(straight.critic.params["blocks"], start["blocks"])
    assert moved(straight.params["blocks"], start["blocks"])
    rows = files["metrics.jsonl"]
    assert all(row["critic_grad_norm"] > 0 and row["term_value"] > 0 for row in rows)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "run", Fuse("checkpoint", 2), patch, trunk=trunk)
    with pytest.MonkeyPatch.context() as patch:
        again, found = learn(tmp_path / "run", Fuse(), patch, trunk=trunk)
    jax.tree.map(np.testing.assert_array_equal, again, straight)
    assert found == files


@pytest.mark.slow
@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_later_updates_on_a_batch_keep_the_credit_of_the_first(tmp_path, trunk):
    """What the critic said before the first update goes into each of them."""
    given = []

    def watched(made):
        return lambda *args: (given.append(jax.device_get(args[6])), made(*args))[1]

    with pytest.MonkeyPatch.context() as patch:
        plain = stages.policy_step
        patch.setattr(stages, "policy_step", lambda *args, **kwargs: watched(plain(*args, **kwargs)))
        learn(tmp_path / "run", Fuse(), patch, **{"rl.steps": 2, "rl.updates_per_batch": 2}, trunk=trunk)
    assert len(given) == 4
    np.testing.assert_array_equal(given[0], given[1])
    np.testing.assert_array_equal(given[2], given[3])
    assert not np.array_equal(given[0], given[2])


def test_a_critic_needs_all_its_parts():
    """An estimator that reads it, a term that trains it, an optimizer; and none of them alone."""
    assert run_settings.read(config()).rl.critic_optimizer is not None
    made = config()
    made.rl.critic_optimizer = None
    with pytest.raises(InputError, match=r"config\.rl\.critic_optimizer is None, and .* 'gae' reads a critic"):
        run_settings.read(made)
    made = config()
    made.loss.terms = ()
    with pytest.raises(InputError, match=r"'gae' reads a critic, and none of config\.loss\.terms trains one"):
        run_settings.read(made)
    made = small.config()
    made.loss.terms = (VALUE,)
    with pytest.raises(InputError, match="'grpo' has no use for one"):
        run_settings.read(made)
    made = small.config()
    made.rl.critic_optimizer = config().rl.critic_optimizer
    with pytest.raises(InputError, match=r"'grpo' reads no critic; set it where there is one"):
        run_settings.read(made)
    made = config()
    made.rl.critic_trunk = None
    with pytest.raises(InputError, match=r"config\.rl\.critic_trunk is None and config\.rl\.critic_optimizer Optim"):
        run_settings.read(made)
    with pytest.raises(InputError, match=r"config\.rl\.critic_trunk 'policy': unknown; known: own, shared, stopped"):
        run_settings.read(config("policy"))
