"""The scorer: packed, it says what a forward pass over each prefix and answer on its own says."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from ml_collections import ConfigDict

from configs.methods import tips
from launch.group import run
from launch.local import free_port
from rlsearch import assemble, train
from rlsearch import settings as run_settings
from rlsearch.envs.types import Question, State, Status
from rlsearch.errors import InputError
from rlsearch.interop.export import export_model
from rlsearch.models import decoder
from rlsearch.rewards.likelihood import ScorerConfig
from rlsearch.rewards.notes import ACTS
from rlsearch.sampling.grow import Episode, Point, Tree
from rlsearch.training import reinforce
from rlsearch.training.checkpoint import Checkpoints
from rlsearch.training.collect import Collector
from rlsearch.training.scorer import RowConfig, Scorer
from rlsearch.training.workdir import Workdir
from tests import small
from tests.interop import small as interop
from tests.models import small as models
from tests.training import score_share, stages, steps
from tests.training.stages import Fuse
from tests.training.test_exactness import BUSHY, SIZES
from tests.tree.random_forests import leaves_of, random_trees
from tests.tree.test_endings import everything, prefix

ROOT = Path(__file__).parents[2]
ROWS = RowConfig(tokens=40, targets=12, block=2, blocks=4)
LONGEST = 32  # tokens of a sequence


class Numbers:
    """A tokenizer for text that is token ids with blanks between them."""

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    encode_control = encode


def scorer(**changes) -> Scorer:
    """Of two tokens before each answer and one behind it that is scored."""
    fields = {
        "model": "reference", "before": "3 4 ", "after": " 5", "answers": "gold", "length": "total", "several": "max",
        "scale": "log",
    }  # fmt: skip
    rows = changes.pop("rows", ROWS)
    return Scorer(ScorerConfig(**{**fields, **changes}), Numbers(), models.config(), None, rows)


def grown(seed: int, **sizes) -> tuple[list[Tree], list[Question]]:
    """Random trees with a random half of their nodes as places, and two questions with up to three answers."""
    rng, found = np.random.default_rng(seed), []

    def answer():
        return " ".join(map(str, rng.integers(1, 29, size=rng.integers(1, 4))))

    questions = [Question(f"q/{i}", "?", tuple(answer() for _ in range(rng.integers(1, 4))), (), 0, "") for i in (0, 1)]
    for question, root in random_trees(seed, **sizes):
        state = State(questions[question], Status.DONE)
        points = [Point(b, state, 0) for b in everything(root) if b is root or rng.random() < 0.5]
        tree = Tree(question, root, points)
        tree.episodes += [
            Episode([(tree, leaf)], dataclasses.replace(state, answer=answer()), cut=False, number=n)
            for n, leaf in enumerate(leaves_of(root))
        ]
        found.append(tree)
    return found, questions


@functools.cache
def judged(made: Scorer, mesh):
    return made.judge(models.parameters(models.config()), steps.config("grpo", "token"), mesh)


def found_by(made: Scorer, trees, questions, mesh, trained=None) -> list[list[float]]:
    judge = judged(made, mesh)
    found = made.potentials(trees, questions, lambda rows, used: judge(trained, rows, used))
    return [[found[id(point.branch)] for point in tree.points] for tree in trees]


@jax.jit
def _alone(params, token_id):
    index = jnp.broadcast_to(jnp.arange(LONGEST)[None], token_id.shape)
    hidden = decoder.apply(
        params, models.config(), token_id=token_id, position=index, token_end=jnp.full_like(index, LONGEST),
        remat=False, attention="dense",
    )  # fmt: skip
    return jax.nn.log_softmax(decoder.logits(params, models.config(), hidden))


def one_at_a_time(params, made: Scorer, trees, questions) -> list[list[float]]:
    """Every place with every answer as a sequence of its own."""

    def values(tree):
        given = dict.fromkeys(questions[tree.question].answers, 1.0)
        if made.config.answers == "group":
            said = [e.state.answer for other in trees if other.question == tree.question for e in other.episodes]
            given = {answer: said.count(answer) / len(said) for answer in said}
        return [_value(params, made.config, prefix(tree.root, point.branch), given) for point in tree.points]

    return [values(tree) for tree in trees]


def _value(params, config, before, given) -> float:
    found = []
    for answer, weight in given.items():
        ids = [int(word) for word in answer.split()] + [5]
        sequence = [*before, 3, 4, *ids]
        logp = np.asarray(_alone(params, np.array([sequence + [0] * (LONGEST - len(sequence))])))[0]
        total = sum(float(logp[at - 1, sequence[at]]) for at in range(len(sequence) - len(ids), len(sequence)))
        found.append(weight * math.exp(total / (len(ids) if config.length == "mean" else 1)))
    value = max(found) if config.several == "max" else math.fsum(found)
    return value if config.scale == "probability" else math.log(value)


CHOICES = [
    {},
    {"length": "mean", "several": "logsumexp"},
    {"several": "logsumexp", "scale": "probability"},
    {"answers": "group", "length": "mean", "several": "logsumexp"},
]


@pytest.mark.parametrize("changes", CHOICES)
@settings(max_examples=4)
@given(sizes=SIZES)
@example(sizes=BUSHY)
def test_packed_equals_one_prefix_at_a_time(changes, sizes):
    trees, questions = grown(**sizes)
    made = scorer(**changes)
    found = found_by(made, trees, questions, steps.mesh())
    expected = one_at_a_time(models.parameters(models.config()), made, trees, questions)
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_any_mesh_and_any_rows():
    trees, questions = grown(**BUSHY)
    expected = found_by(scorer(), trees, questions, steps.mesh())
    wide = scorer(rows=RowConfig(tokens=160, targets=100, block=8, blocks=1))
    cut = (steps.mesh(data=2, fsdp=2, model=2), steps.mesh(data=2, sequence=2, model=2))
    for mesh in (steps.mesh(), *cut):
        for one, other in zip(found_by(wide, trees, questions, mesh), expected, strict=True):
            assert one == pytest.approx(other, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_two_processes_score_their_own_rollouts(tmp_path, monkeypatch):
    """Each gets back what belongs to its own rows, which are not equally many."""
    monkeypatch.chdir(ROOT)
    module = [sys.executable, "-m", "tests.training.score_share", str(tmp_path), f"127.0.0.1:{free_port()}"]
    assert run([[*module, str(i)] for i in range(2)]) == 0
    expected = [score_share.potentials(steps.mesh(), question, block=2) for question in range(2)]
    assert len(expected[0]) != len(expected[1])
    for process in range(2):
        assert np.load(tmp_path / f"{process}.npy") == pytest.approx(expected[process], rel=1e-5, abs=1e-5)


def test_who_scores():
    """The policy as it was, the policy as it is, or another model."""
    trees, questions = grown(**BUSHY)
    start, later = models.parameters(models.config()), models.parameters(models.config(), seed=7)
    for name, params, expected in (("reference", None, start), ("policy", None, later), ("a/directory", later, later)):
        made = dataclasses.replace(scorer(model=name), load=params and (lambda mesh, params=params: params))
        judge = made.judge(start, steps.config("grpo", "token"), steps.mesh())
        found = made.potentials(trees, questions, functools.partial(judge, later))
        want = itertools.chain(*one_at_a_time(expected, made, trees, questions))
        got = [found[id(point.branch)] for tree in trees for point in tree.points]
        assert got == pytest.approx(list(want), rel=1e-5, abs=1e-5)


def test_a_group_that_says_nothing_has_no_potential():
    trees, questions = grown(**BUSHY)
    for tree in trees:
        for episode in tree.episodes:
            episode.state = dataclasses.replace(episode.state, answer=None)
    found = found_by(scorer(answers="group"), trees, questions, steps.mesh())
    assert {value for one in found for value in one} == {0.0}


def test_what_does_not_fit_a_row_is_named():
    trees, questions = grown(**BUSHY)
    made = scorer(rows=RowConfig(tokens=10, targets=12, block=2, blocks=4))
    with pytest.raises(InputError, match=r"question q/\d: a rollout with its answer behind it is too long.*row_tokens"):
        found_by(made, trees, questions, steps.mesh())
    questions[0] = dataclasses.replace(questions[0], answers=())
    questions[1] = dataclasses.replace(questions[1], answers=())
    with pytest.raises(InputError, match=r"question q/0: golden answers \(\) cannot be scored"):
        found_by(scorer(), trees, questions, steps.mesh())


def config(**changes) -> ConfigDict:
    """The small run with the potential of TIPS, and some keys of its scorer changed."""
    made, method = small.config(**{"rl.steps": 3, "rl.checkpoint_every": 1}), tips.get_config()
    made.notes, made.credit, made.scorer = method.notes, method.credit, method.scorer
    made.scorer.update(changes)
    return made


def learn(path: Path, fuse: Fuse, **changes):
    """The stage from the small run's warm policy; what it ends with, and the notes of its rollouts."""
    made, workdir, notes = config(**changes), Workdir(path, writes=True), []

    def watched(self, *args, **kwargs):
        batch = collect(self, *args, **kwargs)
        notes.append(batch.forest.nodes)
        return batch

    collect = Collector.collect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reinforce, "make_optimizer", stages.optimizer)
        patch.setattr(reinforce, "make_policy_step", stages.policy_step)
        patch.setattr(Checkpoints, "save", fuse.after("checkpoint", Checkpoints.save))
        patch.setattr(Collector, "collect", watched)
        workdir.open(made)
        state, _ = stages.learn(run_settings.read(made), small.warmed().params, workdir, fuse)
    return jax.device_get(state.params), stages.files(path), notes


@pytest.mark.slow
def test_an_interrupted_run_scores_with_the_same_frozen_policy(tmp_path):
    straight, files, notes = learn(tmp_path / "straight", Fuse())
    for nodes in notes:
        phi = nodes.notes["potential"]
        said = (nodes.parent == -1) | np.isin(nodes.kind, ACTS)
        assert (phi[said] < 0).all()
        assert (phi[~said] == 0).all()
        assert len(set(phi[said].round(4))) > 8
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "run", Fuse("checkpoint", 2))
    again, found, _ = learn(tmp_path / "run", Fuse())
    jax.tree.map(np.testing.assert_array_equal, again, straight)
    assert found == files


@pytest.mark.slow
def test_another_model_by_its_directory(tmp_path):
    """An export of the warm policy scores as the policy before training does, and the trained one otherwise."""
    start = small.warmed()
    export_model(tmp_path / "export", start.params, start.parts.policy.model, start.parts.policy.tokenizer)
    by = {
        name: learn(tmp_path / f"run{i}", Fuse(), model=name)[2]
        for i, name in enumerate(["reference", str(tmp_path / "export"), "policy"])
    }
    first, exported, policy = ([nodes.notes["potential"] for nodes in notes] for notes in by.values())
    for one, other in zip(first, exported, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(policy[0], first[0], atol=1e-5)
    assert np.abs(policy[2] - first[2]).max() > 1e-3


@pytest.mark.slow
def test_a_whole_run_with_a_scorer(tmp_path):
    mesh = small.one_device()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.sharding, "make_mesh", lambda _: mesh)
        summary = train.train(config(), tmp_path / "run")
    assert summary["after"]["questions"] == 12
    rows = Workdir(tmp_path / "run", writes=False).rows("metrics.jsonl")
    assert [row["step"] for row in rows if row["stage"] == "rl"] == [1, 2, 3]
    assert all(row["grad_norm"] > 0 for row in rows if row["stage"] == "rl")
    assert all(row["potential_first"] < row["potential_last"] < 0 for row in rows if row["stage"] == "rl")
    assert (tmp_path / "run" / "export" / "config.json").is_file()
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_scorer_and_its_column_need_each_other():
    made = config()
    assert run_settings.read(made).scorer.model == "reference"
    made.notes = (("potential", "evidence"),)
    with pytest.raises(InputError, match=r"a scorer is asked where a column is written by 'answer_likelihood'"):
        run_settings.read(made)
    made = config()
    made.scorer = None
    with pytest.raises(InputError, match=r"config\.scorer is None and config\.notes \(\('potential', 'answer_likel"):
        run_settings.read(made)


def test_a_scorer_that_does_not_fit_is_refused_before_the_warm_up(tmp_path):
    mesh = small.one_device()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.sharding, "make_mesh", lambda _: mesh)
        with pytest.raises(InputError, match="'nowhere': no such directory"):
            train.train(config(model="nowhere"), tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_model_with_other_tokens_is_refused(tmp_path):
    policy = small.assembled().parts.policy
    with pytest.raises(
        InputError, match=r"'refrence': no such directory; name that of a Hugging Face model, or one of"
    ):
        assemble.open_scorer("refrence", policy)
    other = interop.tokenizer()
    cfg = interop.config("qwen2", tied=True, dtype="float32")
    export_model(tmp_path / "other", interop.parameters(cfg), cfg, other)
    with pytest.raises(InputError, match=r"its tokenizer is not the policy's: \d+ ids against \d+, and id \d+ is \[b'"):
        assemble.open_scorer(str(tmp_path / "other"), policy)
    export_model(tmp_path / "own", policy.params, policy.model, policy.tokenizer)
    cfg, load = assemble.open_scorer(str(tmp_path / "own"), policy)
    assert cfg == policy.model
    jax.tree.map(np.testing.assert_array_equal, load(small.one_device()), jax.device_get(policy.params))
    assert assemble.open_scorer("policy", policy) == (policy.model, None)
