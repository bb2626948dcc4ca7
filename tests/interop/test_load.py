from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rlsearch.errors import InputError
from rlsearch.interop.export import export_model
from rlsearch.interop.load import import_model
from tests.interop.small import config, parameters, tokenizer

NORM = "model.layers.1.input_layernorm.weight"


@pytest.fixture
def exported(tmp_path):
    cfg = config("qwen2", tied=True, dtype="float32")
    export_model(tmp_path / "model", parameters(cfg), cfg, tokenizer())
    return tmp_path / "model"


def _change(directory, change):
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def _configure(directory, **changes):
    content = json.loads((directory / "config.json").read_text())
    content = {key: value for key, value in {**content, **changes}.items() if value is not ...}
    (directory / "config.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NORM), f"no tensor '{NORM}'"),
        (lambda t: t.update({"lm_head.weight": np.zeros((2, 2), np.float32)}), "no place.*lm_head.weight"),
        (lambda t: t.update({NORM: t[NORM][:-1]}), rf"'{NORM}' has shape \[47\], the config says \[48\]"),
        (lambda t: t.update({NORM: t[NORM].astype(np.float16)}), f"'{NORM}' is float16"),
        (lambda t: t.update({NORM: t[NORM] * np.nan}), f"'{NORM}': 48 of 48 values are NaN"),
    ],
)
def test_wrong_tensors_are_named(exported, change, message):
    _change(exported, change)
    with pytest.raises(InputError, match=message):
        import_model(exported)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"architectures": ["Qwen2ForTokenClassification"]}, "architectures"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type is 'yarn'"),
        ({"rope_theta": 5.0}, "rope_theta is 5.0 but"),
        ({"rope_theta": ..., "rope_parameters": ...}, "no rope_theta"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling is .* but rope_parameters"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "rope_scaling: rope_type is 'dynamic'"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "'llama3' misses high_freq_factor, low_freq"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"hidden_size": ...}, "missing hidden_size"),
    ],
)
def test_configs_that_the_decoder_cannot_do_are_named(exported, changes, message):
    _configure(exported, **changes)
    with pytest.raises(InputError, match=message):
        import_model(exported)


def test_keys_of_transformers_4_and_5_are_each_enough(exported):
    cfg, _ = import_model(exported)
    _configure(exported, rope_parameters=..., dtype=..., head_dim=...)
    assert import_model(exported)[0] == cfg
    _configure(exported, rope_theta=..., torch_dtype=..., rope_parameters={"rope_theta": 1000.0}, dtype="float32")
    assert import_model(exported)[0] == cfg


def test_weights_cut_short_or_absent_are_named(exported):
    path = exported / "model.safetensors"
    whole = path.read_bytes()
    for size in (len(whole) - 1, 100, 0):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"model\.safetensors: not a whole safetensors file"):
            import_model(exported)
    path.unlink()
    with pytest.raises(InputError, match=r"model\.safetensors: no such file"):
        import_model(exported)
    with pytest.raises(InputError, match=r"config\.json: no such file"):
        import_model(exported / "nowhere")


def test_a_checkpoint_in_several_files(exported):
    _, whole = import_model(exported)
    tensors = load_file(exported / "model.safetensors")
    (exported / "model.safetensors").unlink()
    ordered = sorted(tensors)
    parts = {"one.safetensors": ordered[::2], "two.safetensors": ordered[1::2]}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, exported / file)
    index = {name: file for file, held in parts.items() for name in held}
    (exported / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    _, again = import_model(exported)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*map(jax.tree.leaves, (whole, again)), strict=True))
    index[ordered[0]] = "two.safetensors"
    (exported / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(InputError, match=r"two\.safetensors: no tensor"):
        import_model(exported)
    index[ordered[0]] = "one.safetensors"
    (exported / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (exported / "one.safetensors").unlink()
    with pytest.raises(InputError, match=r"one\.safetensors: no such file"):
        import_model(exported)
