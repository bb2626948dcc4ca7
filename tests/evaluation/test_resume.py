"""An evaluation that was stopped goes on, and gives what it would have given; what is not its own is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace

import hypothesis
import jax
import pytest
from hypothesis import strategies as st

from rlsearch.envs.types import Call, Piece, Question, State, Status, Turn
from rlsearch.errors import InputError
from rlsearch.evaluation import evaluate, metrics
from rlsearch.evaluation.episodes import Episodes, from_row, to_row
from rlsearch.evaluation.identity import identity
from rlsearch.sampling.rollouts import POLICY
from rlsearch.search.corpus import Corpus
from rlsearch.search.types import Passage
from tests import small

AT_ONCE = 4
OF = {"config": {"name": "a", "seed": 0}, "questions": "q", "parameters": "p"}
QUESTIONS = tuple(Question(f"t/{i}", f"who is {i}?", (f"né {i}",), ("p1",), i % 3, "t") for i in range(10))


def finished(question: Question) -> State:
    search = Turn(
        "<search>a\n</search>",
        "search",
        (Call("search", "a", 3),),
        ("p1", "p2"),
        0,
        (Piece("<i>", True), Piece("b", False)),
    )
    return State(question, Status.DONE, (search, Turn("<answer>", "answer")), answer=question.answers[0])


def kept(file, *, of=OF, questions=QUESTIONS) -> Episodes:
    return Episodes(file, of, questions, AT_ONCE)


def run(episodes: Episodes) -> list[State]:
    """What ``resume`` does, with episodes that cost nothing."""
    states = episodes.read()
    for first in range(len(states), len(episodes.questions), AT_ONCE):
        states += episodes.append([finished(question) for question in episodes.questions[first : first + AT_ONCE]])
    return states


@pytest.fixture
def straight(tmp_path) -> bytes:
    """The file of an evaluation that nothing stopped."""
    assert run(kept(tmp_path / "straight")) == [finished(question) for question in QUESTIONS]
    return (tmp_path / "straight").read_bytes()


@hypothesis.given(st.from_type(State))
def test_an_episode_comes_back_from_json_as_it_was(state):
    assert from_row(json.loads(json.dumps(to_row(state)))) == state


def test_what_an_environment_adds_to_a_state_is_left_out():
    @dataclass(frozen=True)
    class Longer(State):
        memory: frozenset = frozenset({"no JSON"})

    plain = finished(QUESTIONS[0])
    longer = Longer(**{field.name: getattr(plain, field.name) for field in fields(State)})
    assert from_row(json.loads(json.dumps(to_row(longer)))) == plain
    assert metrics.record([longer], stage="rl", step=0, name="x") == metrics.record(
        [plain], stage="rl", step=0, name="x"
    )


def test_cut_off_anywhere_it_goes_on_to_the_same_file(tmp_path, straight, capsys):
    """Whole groups stay, and the rest is done again in the groups that it was in, and is said to be."""
    ends = [i + 1 for i, byte in enumerate(straight) if byte == ord("\n")]
    groups = {0, ends[0], ends[AT_ONCE], ends[2 * AT_ONCE], ends[-1]}
    cuts = sorted({cut for end in (0, *ends) for cut in (end - 1, end, end + 1, end + 40) if 0 <= cut <= len(straight)})
    assert len(cuts) > 40
    for cut in cuts:
        file = tmp_path / f"cut{cut}"
        file.write_bytes(straight[:cut])
        states = kept(file).read()
        whole = sum(end <= cut for end in ends) - 1
        assert len(states) == max(whole if whole == len(QUESTIONS) else whole // AT_ONCE * AT_ONCE, 0)
        said = capsys.readouterr().err
        torn = cut - max([end for end in ends if end <= cut], default=0)
        assert ("dropped" in said) == (cut not in groups)
        assert (f"a last line that was cut off after {torn} bytes" in said) == (torn > 0)
        extra = max(whole, 0) - len(states)
        assert (f"{extra} of the 4 episodes of a group that was not finished" in said) == (extra > 0)
        assert (f"{len(states)} of 10 questions are answered already" in said) == (len(states) > 0)
        assert file.read_bytes() == straight[: max(group for group in groups | {ends[0]} if group <= max(cut, ends[0]))]
        assert run(kept(file)) == [finished(question) for question in QUESTIONS]
        assert file.read_bytes() == straight


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            {**OF, "config": {"name": "a", "seed": 1}},
            r"differ in config\.seed\. Use another --workdir.*delete the file",
        ),
        ({**OF, "parameters": "x", "questions": "y"}, r"differ in parameters, questions\. Use"),
        ({"config": OF["config"], "questions": "q"}, r"differ in parameters\. Use"),
    ],
)
def test_the_episodes_of_another_evaluation_are_refused_and_stay(tmp_path, straight, of, said):
    file = tmp_path / "episodes.jsonl"
    file.write_bytes(straight + b"torn")
    with pytest.raises(InputError, match=rf"episodes\.jsonl: holds the episodes of another.*{said}"):
        kept(file, of=of).read()
    assert file.read_bytes() == straight + b"torn"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: [b"my diary"], r":1: does not say what evaluation .* delete the file"),
        (lambda lines: [b"my diary", b""], r":1: does not say"),
        (lambda lines: lines[1:], r":1: does not say"),
        (
            lambda lines: [*lines[:3], b"noise", *lines[4:]],
            r":4: no episode \(JSONDecodeError.* delete this line and those",
        ),
        (lambda lines: [*lines[:3], b"\xff", *lines[4:]], r":4: no episode \(UnicodeDecodeError"),
        (lambda lines: [*lines[:3], b"{}", *lines[4:]], r":4: no episode \(KeyError"),
        (lambda lines: [*lines[:3], b"[]", *lines[4:]], r":4: no episode \(TypeError"),
        (lambda lines: [*lines[:3], *lines[4:]], r":4: an episode of question t/3 where t/2 belongs"),
        (lambda lines: [*lines[:-1], lines[-2], b""], r":12: an episode more than the 10 questions"),
    ],
)
def test_damage_is_named_by_line(tmp_path, straight, damage, said):
    file = tmp_path / "episodes.jsonl"
    file.write_bytes(b"\n".join(damage(straight.split(b"\n"))))
    before = file.read_bytes()
    with pytest.raises(InputError, match=r"episodes\.jsonl" + said):
        kept(file).read()
    assert file.read_bytes() == before


@pytest.fixture(scope="module")
def warmed():
    """The small run, with enough held-out questions for three groups of 16."""
    run = small.warmed()
    run = run._replace(parts=replace(run.parts, engine=small.engine(run.parts, slots=(4,))))
    return run, replace(run.parts.task, heldout=run.parts.task.train[:40])


class Killed(Exception):
    """Stands for a kill: nothing catches it."""


def resumed(warmed, file, *, config=None, **changes) -> list[State]:
    run, task = warmed
    given = {"scene": run.parts.scene, "params": {POLICY: run.params}, "task": task, **changes}
    return evaluate.resume(run.parts.engine, **given, config=run.config if config is None else config, file=file)


def test_killed_after_any_group_it_gives_the_same_episodes_and_record(warmed, tmp_path, monkeypatch):
    states = resumed(warmed, tmp_path / "straight")
    assert [state.question for state in states] == list(warmed[1].heldout)
    assert len({turn.text for state in states for turn in state.turns}) > 3
    greedy, asked = evaluate.greedy, []

    def fuse(*arguments):
        if len(asked) == most:
            raise Killed
        asked.append([question.id for question in arguments[-1]])
        return greedy(*arguments)

    monkeypatch.setattr(evaluate, "greedy", fuse)
    for most in (0, 1, 2):
        file, asked = tmp_path / f"killed{most}", []
        with pytest.raises(Killed):
            resumed(warmed, file)
        assert len(file.read_bytes().splitlines()) == 1 + 16 * most
        most = 3
        again = resumed(warmed, file)
        assert [id for group in asked for id in group] == [question.id for question in warmed[1].heldout]
        assert again == states
        assert file.read_bytes() == (tmp_path / "straight").read_bytes()
        records = [metrics.record(made, stage="evaluation", step=0, name="x") for made in (again, states)]
        assert records[0] == records[1]
        assert resumed(warmed, file) == states  # finished: nothing is asked
        assert len(asked) == 3


def test_an_evaluation_in_training_keeps_nothing_and_says_the_same(warmed, tmp_path):
    run, task = warmed
    states = resumed(warmed, tmp_path / "episodes.jsonl")
    record = evaluate.evaluate(
        run.parts.engine, run.parts.scene, {POLICY: run.params}, task.heldout, stage="rl", step=1, name="heldout"
    )
    assert record == metrics.record(states, stage="rl", step=1, name="heldout")


def test_each_thing_that_changes_answers_is_part_of_the_identity(warmed):
    run, task = warmed
    scene = run.parts.scene
    corpora = {**task.corpora, "train_000": Corpus.of([Passage("a", "b", "c")], "here")}

    class Tokens:
        eos_ids = scene.tokenizer.eos_ids

        def __getattr__(self, name):
            return getattr(scene.tokenizer, name)

    same, other = Tokens(), Tokens()
    other.eos_ids = (0,)
    chat = SimpleNamespace(prompt_ids=lambda tokenizer, question: [1, 2, 3])
    mine = identity(run.config, task, scene, run.params)
    assert json.loads(json.dumps(mine)) == mine
    for changed, keys in (
        ((small.config(), task, scene, run.params), set()),
        ((small.config(**{"rl.steps": 9, "warmup.steps": 1}), task, scene, run.params), set()),
        ((run.config, task, replace(scene, tokenizer=same), run.params), set()),
        ((small.config(seed=1, name="x"), task, scene, run.params), {"config"}),
        ((small.config(**{"sampling.max_turn_tokens": 5}), task, scene, run.params), {"config"}),
        ((run.config, replace(task, heldout=task.heldout[:-1]), scene, run.params), {"questions"}),
        ((run.config, replace(task, corpora=corpora), scene, run.params), {"passages"}),
        ((run.config, task, replace(scene, tokenizer=other), run.params), {"tokenizer"}),
        ((run.config, task, replace(scene, template=chat), run.params), {"tokenizer"}),
        ((run.config, task, scene, jax.tree.map(lambda leaf: leaf * 1.001, run.params)), {"parameters"}),
    ):
        theirs = identity(*changed)
        assert {key for key in mine if mine[key] != theirs[key]} == keys, keys


def test_another_model_or_question_set_is_refused(warmed, tmp_path):
    file, (run, task) = tmp_path / "episodes.jsonl", warmed
    resumed(warmed, file)
    with pytest.raises(InputError, match=r"differ in parameters\."):
        resumed(warmed, file, params={POLICY: run.parts.policy.params})
    with pytest.raises(InputError, match=r"differ in questions\."):
        resumed(warmed, file, task=replace(task, heldout=task.heldout[1:]))
    with pytest.raises(InputError, match=r"differ in config\.sampling\.max_context\."):
        resumed(warmed, file, config=small.config(**{"sampling.max_context": 95}))


def test_no_question_is_refused(warmed, tmp_path):
    with pytest.raises(InputError, match=r"config\.task has 0 held-out questions.*raise heldout_questions"):
        resumed(warmed, tmp_path / "episodes.jsonl", task=replace(warmed[1], heldout=()))
    assert not (tmp_path / "episodes.jsonl").exists()


def test_a_group_is_on_the_disk_before_the_next_one_is_asked(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda _: synced.append((tmp_path / "file").read_bytes().count(b"\n")))
    run(kept(tmp_path / "file"))
    assert synced == [1, 5, 9, 11]
