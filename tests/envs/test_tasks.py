"""Tasks put together from a config: worlds, or files of questions and passages."""

from __future__ import annotations

import json

import pytest
from ml_collections import ConfigDict

from rlsearch.envs.tasks import make_task, open_retrievers
from rlsearch.errors import InputError
from tests import small


@pytest.fixture(scope="module")
def task():
    config = small.config()
    return make_task(config.task, config.env, seed=0)


def test_worlds_make_questions_corpora_and_words(task):
    assert (len(task.train), len(task.heldout)) == (4 * 12, 2 * 6)
    assert list(task.corpora) == [*(f"train_00{i}" for i in range(4)), "heldout_000", "heldout_001"]
    assert list(task.worlds) == [f"train_00{i}" for i in range(4)]
    assert len(task.words) == len(set(task.words)) == 60
    assert {question.corpus for question in task.heldout} == {"heldout_000", "heldout_001"}
    ids = [question.id for question in (*task.train, *task.heldout)]
    assert len(set(ids)) == len(ids)
    for question in (*task.train, *task.heldout):
        known = {passage.id for passage in task.corpora[question.corpus].passages}
        assert set(question.supporting_ids) <= known


def test_the_task_is_a_function_of_config_and_seed(task):
    config = small.config()
    again, other = (make_task(config.task, config.env, seed=seed) for seed in (0, 1))
    assert (again.train, again.heldout, again.words) == (task.train, task.heldout, task.words)
    assert other.train != task.train


def test_training_questions_do_not_change_the_held_out_ones(task):
    config = small.config(**{"task.train_questions": 30, "task.worlds.training": 6})
    assert make_task(config.task, config.env, seed=0).heldout == task.heldout


def test_each_corpus_has_its_retriever(task, tmp_path):
    retrievers = open_retrievers(task, small.config().search, tmp_path)
    assert list(retrievers) == list(task.corpora)
    for question in (task.train[0], task.heldout[-3]):
        relation, entity = question.text.removeprefix("What is the ").removesuffix("?").split(" of ")
        (hits,) = retrievers[question.corpus].search([f"{relation} {entity}"], k=1)
        assert hits.passages[0].id == question.supporting_ids[0]


def files_task(folder, **changes) -> ConfigDict:
    """A question set of three splits and its corpus, on disk."""
    questions = [
        {"id": str(i), "question": f"who is {i}?", "golden_answers": [f"name {i}"], "split": split}
        for i, split in enumerate(["train"] * 3 + ["dev"] * 3)
    ]
    passages = [{"id": f"p{i}", "title": f"{i}", "text": f"{i} is name {i}"} for i in range(6)]
    for name, rows in (("questions.jsonl", questions), ("corpus.jsonl", passages)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    section = {
        "kind": "files", "source": "set", "questions": str(folder / "questions.jsonl"),
        "corpus": str(folder / "corpus.jsonl"), "train_split": "train", "heldout_split": "dev", "heldout_questions": 2,
    }  # fmt: skip
    return ConfigDict(section | changes)


def test_files_make_a_task_of_one_corpus(tmp_path):
    task = make_task(files_task(tmp_path), small.config().env, seed=0)
    assert [question.id for question in task.train] == ["set/0", "set/1", "set/2"]
    assert [question.id for question in task.heldout] == ["set/3", "set/4"]
    assert (list(task.corpora), task.worlds, task.words) == (["set"], {}, ())
    assert {question.corpus for question in task.train} == {"set"}


@pytest.mark.parametrize("changes", [{"questions": "nowhere.jsonl"}, {"corpus": "nowhere.jsonl"}])
def test_a_file_that_is_missing_is_named(tmp_path, changes):
    with pytest.raises(InputError, match=r"nowhere\.jsonl"):
        make_task(files_task(tmp_path, **changes), small.config().env, seed=0)


def test_an_unknown_kind_or_style_is_refused():
    config = small.config()
    with pytest.raises(InputError, match=r"config\.task\.kind: 'world' is unknown; did you mean 'worlds'"):
        make_task(ConfigDict({"kind": "world"}), config.env, seed=0)
    config.env.style = "compct"
    with pytest.raises(InputError, match="did you mean 'compact'"):
        make_task(config.task, config.env, seed=0)
