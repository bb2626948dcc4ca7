from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rlsearch.errors import InputError
from rlsearch.interop.export import export_model
from rlsearch.interop.load import check_vocabulary, import_model, import_reward_model
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


def test_a_tied_head_may_be_stored_twice(exported):
    """As in Qwen3-0.6B's files; another array under that name has no place."""
    _, before = import_model(exported)
    _change(exported, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].copy()}))
    assert jax.tree.structure(import_model(exported)[1]) == jax.tree.structure(before)
    _change(exported, lambda t: t.update({"lm_head.weight": 2 * t["model.embed_tokens.weight"]}))
    with pytest.raises(InputError, match=r"no place .* with a tied head: lm_head\.weight"):
        import_model(exported)


def test_a_tokenizer_larger_than_the_embedding_is_refused():
    cfg = config("qwen2", tied=True, dtype="float32", vocab_size=100)
    with pytest.raises(InputError, match=f"here: the tokenizer has {tokenizer().vocab_size} ids but .* only 100 rows"):
        check_vocabulary(tokenizer(), cfg, where="here")


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_text_part_of_a_gemma_that_sees_images(tmp_path, prefix):
    """The published 4B names little in its text_config and leaves the rest to transformers."""
    sliding = {"window": 9, "full_every": 6, "rope_theta": 10000.0}
    cfg = config(
        "gemma3_text", tied=True, dtype="float32", sliding=sliding, rope_theta=1e6, n_heads=8, n_kv_heads=4,
        query_scalar=256.0, head_dim=256, max_positions=131072,
    )  # fmt: skip
    params = parameters(cfg)
    export_model(tmp_path / "m", params, cfg, tokenizer())
    whole = load_file(tmp_path / "m" / "model.safetensors")
    whole = {prefix + name.removeprefix("model."): array for name, array in whole.items()}
    whole["vision_tower.vision_model.post_layernorm.bias"] = np.zeros(3, np.float32)
    whole["multi_modal_projector.mm_soft_emb_norm.weight"] = np.zeros(3, np.float32)
    save_file(whole, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    text = {
        "hidden_size": 48, "intermediate_size": 80, "model_type": "gemma3_text", "num_hidden_layers": 4,
        "rope_scaling": {"factor": 2.0, "rope_type": "linear"}, "sliding_window": 9, "vocab_size": cfg.vocab_size,
    }  # fmt: skip
    outer = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "float32"}
    (tmp_path / "m" / "config.json").write_text(json.dumps({**outer, "text_config": text}))
    read_cfg, read = import_model(tmp_path / "m")
    assert read_cfg == cfg
    jax.tree.map(np.testing.assert_array_equal, read, params)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gemma3_text", {"layer_types": ["full_attention", *["sliding_attention"] * 3]}, "only every n-th layer"),
        ("gemma3_text", {"rope_local_base_freq": 7.0}, "rope_local_base_freq is 7.0 but"),
        ("gemma3_text", {"hidden_activation": "gelu"}, "hidden_activation is 'gelu'"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "needs attention_cap=None, got 50.0"),
        ("gemma2", {"sliding_window": ...}, "missing sliding_window"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, r"mlp_only_layers is \[1\]"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
        ("qwen3_moe", {"num_experts": ...}, "missing num_experts"),
        ("llama", {"attention_bias": True}, "attention_bias is True"),
    ],
)
def test_configs_of_other_families_are_named_too(tmp_path, family, changes, message):
    cfg = config(family, tied=True, dtype="float32")
    export_model(tmp_path / "m", parameters(cfg), cfg, tokenizer())
    _configure(tmp_path / "m", **changes)
    with pytest.raises(InputError, match=message):
        import_model(tmp_path / "m")


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"architectures": ["Qwen2ForTokenClassification"]}, "architectures"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "rope_type is 'longrope'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "'yarn' misses original_max_position_embeddings"),
        ({"rope_parameters": {**YARN, "attention_factor": 1.0}}, "attention_factor is 1.0; only .* 1.138629"),
        ({"rope_parameters": {**YARN, "truncate": False}}, "truncate is False"),
        ({"rope_parameters": {**YARN, "mscale": 0.7}}, "mscale is 0.7"),
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


@pytest.fixture
def classifier(exported):
    """A reward model as transformers writes it: the trunk's tensors and a head."""
    head = np.arange(48, dtype=np.float32)[None]
    _change(exported, lambda t: t.update({"score.weight": head}))
    _configure(exported, architectures=["Qwen2ForSequenceClassification"], tie_word_embeddings=False)
    return exported


def test_a_reward_model_is_its_trunk_and_its_head(classifier):
    cfg, params = import_reward_model(classifier)
    assert cfg == config("qwen2", tied=True, dtype="float32")
    assert params["value"]["kernel"].tolist() == list(range(48))
    assert params["value"]["bias"].tolist() == [0]
    trunk = {name: leaf for name, leaf in params.items() if name != "value"}
    jax.tree.map(np.testing.assert_array_equal, trunk, jax.device_get(parameters(cfg)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("score.weight"), "no tensor 'score.weight'; a reward model has its head there"),
        (lambda t: t.update({"score.weight": np.zeros((2, 48), np.float32)}), r"'score.weight' is float32 \[2, 48\]"),
        (lambda t: t.update({"score.weight": np.zeros((1, 48), np.float16)}), r"needs float32 \[1, 48\]"),
        (lambda t: t.update({"score.weight": np.full((1, 48), np.inf, np.float32)}), "'score.weight': 48 of 48 values"),
        (lambda t: t.pop(NORM), f"no tensor '{NORM}'"),
        (lambda t: t.update({"score.bias": np.zeros(1, np.float32)}), r"no place.*score\.bias"),
    ],
)
def test_a_reward_model_with_a_wrong_head_is_refused(classifier, change, message):
    _change(classifier, change)
    with pytest.raises(InputError, match=message):
        import_reward_model(classifier)


def test_a_policy_is_no_reward_model(classifier):
    _configure(classifier, architectures=["Qwen2ForCausalLM"])
    with pytest.raises(InputError, match=r"architectures is .*a reward model needs \['Qwen2ForSequenceClassification"):
        import_reward_model(classifier)
    _configure(classifier, model_type="qwen9")
    with pytest.raises(InputError, match="model_type 'qwen9' is not supported"):
        import_reward_model(classifier)


def test_experts_by_the_name_that_transformers_5_gives_them(tmp_path):
    cfg = config("qwen3_moe", tied=True, dtype="float32")
    export_model(tmp_path / "model", parameters(cfg), cfg, tokenizer())
    _configure(tmp_path / "model", num_experts=..., num_local_experts=cfg.experts.count)
    assert import_model(tmp_path / "model")[0] == cfg
