"""Adapters as peft stores them: names, round trips, and what is refused."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rlsearch.errors import InputError
from rlsearch.interop import adapter as adapter_files
from rlsearch.interop import tensor_files
from rlsearch.interop.adapter import CONFIG, TENSORS, export_adapter, import_adapter
from rlsearch.interop.export import export_model
from rlsearch.interop.load import import_model
from rlsearch.models import lora
from rlsearch.models.lora import LoraConfig
from tests.interop.small import config, parameters, tokenizer
from tests.models import adapters

CASES = [("qwen2", True), ("llama", False), ("qwen3_moe", False), ("gemma3_text", True)]


@pytest.mark.parametrize(("family", "tied"), CASES)
def test_export_then_import_is_bit_equal(tmp_path, family, tied):
    cfg = config(family, tied=tied, dtype="bfloat16")
    what = adapters.config(cfg, rank=3, alpha=4.5)
    adapter = adapters.noisy(cfg, what)
    export_adapter(tmp_path / "out", adapter, cfg, what, base="somewhere")
    read_config, read = import_adapter(tmp_path / "out", cfg)
    assert (read_config.rank, read_config.alpha, set(read_config.matrices)) == (3, 4.5, set(what.matrices))
    assert jax.tree.structure(read) == jax.tree.structure(adapter)
    jax.tree.map(np.testing.assert_array_equal, read, adapter)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def exported(tmp_path, *matrices: str):
    cfg = config("llama", tied=False, dtype="float32")
    what = LoraConfig(4, 8.0, matrices or adapters.possible(cfg))
    adapter = adapters.noisy(cfg, what)
    export_adapter(tmp_path / "out", adapter, cfg, what, base="org/model")
    return cfg, adapter["lora"], tmp_path / "out"


def test_files_have_the_names_and_shapes_of_peft(tmp_path):
    _, adapter, folder = exported(tmp_path)
    raw = (folder / TENSORS).read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header.pop("__metadata__") == {"format": "pt"}
    shapes = {name: what["shape"] for name, what in header.items()}
    layer = "base_model.model.model.layers.1."
    assert len(shapes) == 2 * (2 * 7 + 2)
    assert shapes[layer + "self_attn.q_proj.lora_A.weight"] == [4, 48]
    assert shapes[layer + "self_attn.k_proj.lora_B.weight"] == [24, 4]
    assert shapes[layer + "self_attn.o_proj.lora_A.weight"] == [4, 48]
    assert shapes[layer + "mlp.down_proj.lora_A.weight"] == [4, 80]
    assert shapes["base_model.model.lm_head.lora_B.weight"] == [tokenizer().vocab_size, 4]
    assert shapes["base_model.model.model.embed_tokens.lora_embedding_A"] == [4, tokenizer().vocab_size]
    written = load_file(folder / TENSORS)
    np.testing.assert_array_equal(
        written[layer + "self_attn.k_proj.lora_B.weight"], adapter["blocks"]["attn"]["k"]["b"][1].reshape(4, 24).T
    )
    content = json.loads((folder / CONFIG).read_text())
    assert (content["r"], content["lora_alpha"], content["peft_type"], content["bias"]) == (4, 8, "LORA", "none")
    assert content["base_model_name_or_path"] == "org/model"
    assert set(content["target_modules"]) >= {"q_proj", "down_proj", "lm_head", "embed_tokens"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_merged_model_is_exported_as_any_other(tmp_path, dtype):
    cfg = config("qwen2", tied=True, dtype=dtype)
    what = adapters.config(cfg)
    merged = lora.merge({**parameters(cfg), **adapters.noisy(cfg, what)}, what)
    export_model(tmp_path / "out", merged, cfg, tokenizer())
    jax.tree.map(np.testing.assert_array_equal, import_model(tmp_path / "out")[1], jax.device_get(merged))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrower_types_are_read_as_float32(tmp_path, dtype):
    cfg, adapter, folder = exported(tmp_path, "q", "down")
    save_file({name: array.astype(dtype) for name, array in load_file(folder / TENSORS).items()}, folder / TENSORS)
    _, read = import_adapter(folder, cfg)
    for ours, theirs in zip(jax.tree.leaves(adapter), jax.tree.leaves(read), strict=True):
        assert theirs.dtype == np.float32
        np.testing.assert_array_equal(ours.astype(dtype).astype(np.float32), theirs)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("peft_type", "LOHA", "peft_type is 'LOHA'"),
        ("r", None, "r is None, needs a number"),
        ("lora_alpha", "8", "lora_alpha is '8', needs a number"),
        ("bias", "all", "bias is 'all'; only 'none'"),
        ("use_rslora", True, "use_rslora is True, which is not supported"),
        ("use_dora", True, "use_dora is True"),
        ("rank_pattern", {"q_proj": 2}, "rank_pattern is"),
        ("modules_to_save", ["lm_head"], "modules_to_save is"),
        ("r", 5, r"lora_A.weight' has shape \[4, 48\], the model and the rank say \[5, 48\]"),
    ],
)
def test_what_is_no_plain_lora_is_refused_by_its_key(tmp_path, key, value, message):
    cfg, _, folder = exported(tmp_path, "q")
    content = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**content, key: value}))
    with pytest.raises(InputError, match=message):
        import_adapter(folder, cfg)


Q = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {name: t[name] for name in t if name != Q}, f"no tensor '{Q}'; every layer needs one"),
        (lambda t: {**t, Q.replace("layers.1", "layers.2"): t[Q]}, "1 tensors have no place in an adapter of a llama"),
        (lambda t: {**t, "base_model.model.lm_head.base_layer.weight": t[Q]}, "with save_embedding_layers=False"),
        (lambda t: {**t, Q: np.full_like(t[Q], np.nan)}, r"q_proj.lora_B.weight': 192 of 192 values are NaN"),
        (lambda t: {**t, Q: t[Q].T.copy()}, r"has shape \[4, 48\], the model and the rank say \[48, 4\]"),
        (lambda t: {**t, Q: t[Q].astype(np.float64)}, "is float64, must be one of float32, bfloat16, float16"),
        (lambda t: {"other": t[Q]}, "no tensor of a llama model's adapter: other"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(tmp_path, change, message):
    cfg, _, folder = exported(tmp_path, "q")
    save_file(change(load_file(folder / TENSORS)), folder / TENSORS)
    with pytest.raises(InputError, match=message):
        import_adapter(folder, cfg)


def test_a_file_cut_short_or_missing_is_refused(tmp_path):
    cfg, _, folder = exported(tmp_path, "q")
    (folder / TENSORS).write_bytes((folder / TENSORS).read_bytes()[:-9])
    with pytest.raises(InputError, match="not a whole safetensors file"):
        import_adapter(folder, cfg)
    (folder / TENSORS).unlink()
    with pytest.raises(InputError, match=f"{TENSORS}: no such file"):
        import_adapter(folder, cfg)


def test_what_was_written_wrongly_is_found_and_what_else_is_there_left_alone(tmp_path, monkeypatch):
    cfg, adapter, folder = exported(tmp_path, "q")
    what, before = LoraConfig(4, 8.0, ("q",)), (folder / TENSORS).read_bytes()
    write = tensor_files.write

    def damage(directory, described, pieces, **options):
        write(directory, described, ((name, array + 1) for name, array in pieces), **options)

    content = adapter_files._content
    doubled = lambda *args: content(*args) | {"lora_alpha": 16}  # noqa: E731
    for owner, name, change, said in (
        (tensor_files, "write", damage, "q_proj.lora_A.weight reads back differently"),
        (adapter_files, "_content", doubled, "alpha=16.0, .* was written as"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, change)
            with pytest.raises(RuntimeError, match=said):
                export_adapter(folder, {"lora": adapter}, cfg, what, base="b")
    assert (folder / TENSORS).read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match=f"no earlier export .no {TENSORS}"):
        export_adapter(tmp_path / "notes", {"lora": adapter}, cfg, what, base="b")
    bad = jax.tree.map(lambda leaf: leaf * np.nan, adapter)
    with pytest.raises(InputError, match=r"adapter q\.a: \d+ of \d+ values are NaN"):
        export_adapter(tmp_path / "new", {"lora": bad}, cfg, what, base="b")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "notes"}
