"""Released models: every row is an architecture, and has as many parameters as the model that it names."""

from __future__ import annotations

import functools

import jax
import pytest

from configs.models import MODELS, model
from rlsearch import config as configs
from rlsearch.models import decoder
from rlsearch.models.decoder import DecoderConfig

# Parameters of the published checkpoints, a tied head counted once.
PUBLISHED = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-30b-a3b": 30_532_122_624,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "llama3.1-8b": 8_030_261_248,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "gemma3-1b": 999_885_952,
    "gemma3-4b": 3_880_263_168,
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_as_many_as_published(name):
    cfg = configs.read(model(name), DecoderConfig, "model")
    shapes = jax.eval_shape(functools.partial(decoder.init, cfg=cfg), jax.random.key(0))
    assert decoder.parameter_count(shapes) == PUBLISHED[name]


def test_values_are_changed_by_name_and_unknown_models_named():
    assert model("qwen3-4b", dtype="float32", n_layers=2).n_layers == 2
    with pytest.raises(KeyError, match=r"no model 'qwen3-5b'.*qwen3-4b"):
        model("qwen3-5b")
