from __future__ import annotations

import dataclasses
import functools
import json
import tracemalloc

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from rlsearch.errors import InputError
from rlsearch.interop import names, stacking, tensor_files
from rlsearch.interop.export import export_model
from rlsearch.interop.load import import_model
from rlsearch.models import sharding
from rlsearch.tokenization import loading
from tests.interop.small import config, parameters, tokenizer
from tests.tokenization.small_bpe import CHAT, small_bpe


@pytest.mark.parametrize("family", sorted(names.TABLES))
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_export_then_import_is_bit_equal(tmp_path, family, tied, dtype):
    cfg = config(family, tied=tied, dtype=dtype)
    params = parameters(cfg)
    export_model(tmp_path / "out", params, cfg, tokenizer())
    read_cfg, read = import_model(tmp_path / "out")
    assert read_cfg == cfg
    assert jax.tree.structure(read) == jax.tree.structure(params)
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(read), strict=True):
        assert np.asarray(ours).tobytes() == theirs.tobytes()
        assert ours.dtype == theirs.dtype


def test_files_say_what_transformers_asks_for(tmp_path):
    cfg = config("qwen2", tied=True, dtype="bfloat16")
    export_model(tmp_path / "out", parameters(cfg), cfg, tokenizer())
    content = json.loads((tmp_path / "out" / "config.json").read_text())
    assert content["torch_dtype"] == content["dtype"] == "bfloat16"
    assert content["rope_theta"] == content["rope_parameters"]["rope_theta"] == 1000.0
    assert content["eos_token_id"] == 2 and content["pad_token_id"] == 0
    raw = (tmp_path / "out" / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header.pop("__metadata__") == {"format": "pt"}
    assert "lm_head.weight" not in header
    assert header["model.layers.1.self_attn.k_proj.weight"]["shape"] == [24, 48]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_several_ends_of_text_and_the_chat_template_are_kept(tmp_path):
    cfg = dataclasses.replace(config("llama", tied=True, dtype="float32"), vocab_size=small_bpe().vocab_size)
    export_model(tmp_path / "out", parameters(cfg), cfg, small_bpe())
    again = loading.load(tmp_path / "out")
    assert again.eos_ids == small_bpe().eos_ids and len(again.eos_ids) == 2
    assert again.chat_template == CHAT


def test_a_second_export_replaces_the_first_and_nothing_else(tmp_path):
    cfg = config("qwen2", tied=True, dtype="float32")
    params = parameters(cfg)
    export_model(tmp_path / "out", params, cfg, tokenizer())
    doubled = jax.tree.map(lambda leaf: 2 * leaf, params)
    export_model(tmp_path / "out", doubled, cfg, tokenizer())
    written = load_file(tmp_path / "out" / "model.safetensors")["model.norm.weight"]
    np.testing.assert_array_equal(written, 2 * np.asarray(params["final_norm"]["scale"]))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="no earlier export"):
        export_model(tmp_path / "notes", params, cfg, tokenizer())
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "precious"


def test_several_files_with_an_index(tmp_path):
    cfg = config("qwen3_moe", tied=False, dtype="bfloat16")
    params = parameters(cfg)
    export_model(tmp_path / "out", params, cfg, tokenizer(), shard_bytes=40_000)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 3 and set(index["weight_map"].values()) == set(files)
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
    assert index["metadata"]["total_size"] == sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(import_model(tmp_path / "out")[1]), strict=True):
        assert np.asarray(ours).tobytes() == theirs.tobytes()


def test_the_head_of_a_critic_is_left_out_and_padded_rows_are_cut(tmp_path):
    cfg = config("qwen2", tied=False, dtype="float32", vocab_size=tokenizer().vocab_size + 60)
    params = parameters(cfg)
    critic = {**params, "value": {"kernel": np.zeros(48, np.float32), "bias": np.zeros(1, np.float32)}}
    export_model(tmp_path / "out", critic, cfg, tokenizer(), vocab_size=tokenizer().vocab_size)
    read_cfg, read = import_model(tmp_path / "out")
    assert read_cfg == dataclasses.replace(cfg, vocab_size=tokenizer().vocab_size)
    np.testing.assert_array_equal(read["embed"]["embedding"], params["embed"]["embedding"][:-60])
    np.testing.assert_array_equal(read["head"]["kernel"], params["head"]["kernel"][:, :-60])
    with pytest.raises(InputError, match="cannot keep"):
        export_model(tmp_path / "out", params, cfg, tokenizer(), vocab_size=cfg.vocab_size + 1)


def test_sharded_parameters_stream_out_and_in_with_two_layers_in_host_memory_at_most(tmp_path, monkeypatch):
    """Host arrays are what tracemalloc counts; arrays of devices are not."""
    monkeypatch.setattr(stacking, "PIECE", 1 << 14)
    cfg = config("llama", tied=False, dtype="float32", d_model=128, d_ff=512, n_layers=10)
    mesh = sharding.make_mesh(sharding.MeshConfig(1, 2, 1, 2), devices=jax.devices()[:4])
    place = functools.partial(sharding.shard, mesh=mesh)
    cfg = dataclasses.replace(cfg, vocab_size=-(-cfg.vocab_size // 4) * 4)
    params, other = (jax.device_put(parameters(cfg), place(names.unflatten(names.shapes(cfg)))) for _ in range(2))
    two_layers = 2 * sum(leaf.nbytes for leaf in jax.tree.leaves(params["blocks"])) // cfg.n_layers
    export_model(tmp_path / "warm", other, cfg, tokenizer())  # compiles; what it leaves in memory is not counted
    import_model(tmp_path / "warm", place=place)
    tracemalloc.start()
    try:
        export_model(tmp_path / "out", params, cfg, tokenizer())
        out = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        _, read = import_model(tmp_path / "out", place=place)
        back = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(out, back) < two_layers
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(read), strict=True):
        assert ours.sharding == theirs.sharding
        np.testing.assert_array_equal(ours, theirs)


def _with(params, path, leaf):
    *above, last = path.split(".")
    params = jax.tree.map(lambda x: x, params)
    place = params
    for key in above:
        place = place[key]
    if leaf is None:
        del place[last]
    else:
        place[last] = leaf
    return params


@pytest.mark.parametrize(
    ("path", "leaf", "message"),
    [
        ("final_norm.scale", None, "final_norm.scale: missing"),
        ("final_norm.shift", np.zeros(48, np.float32), "final_norm.shift: family 'qwen2' has no place"),
        ("final_norm.scale", np.ones(47, np.float32), r"final_norm.scale: is float32 \[47\]"),
        ("final_norm.scale", np.ones(48, np.float16), "float16"),
        ("final_norm.scale", np.full(48, np.nan, np.float32), "48 of 48 values are NaN"),
    ],
)
def test_refused_parameters_leave_nothing_behind(tmp_path, path, leaf, message):
    cfg = config("qwen2", tied=True, dtype="float32")
    with pytest.raises(InputError, match=message):
        export_model(tmp_path / "out", _with(parameters(cfg), path, leaf), cfg, tokenizer())
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path):
    cfg = config("llama", tied=True, dtype="float32")
    with pytest.raises(InputError, match=f"has {cfg.vocab_size} ids but the embedding only 100 rows"):
        export_model(tmp_path / "out", {}, dataclasses.replace(cfg, vocab_size=100), tokenizer())


@pytest.mark.parametrize("change", [lambda array: array + 1, lambda array: np.ascontiguousarray(array[..., ::-1])])
def test_what_was_written_wrongly_is_found_and_removed(tmp_path, monkeypatch, change):
    write = tensor_files.write

    def damage(directory, described, pieces, **options):
        write(directory, described, ((name, change(array)) for name, array in pieces), **options)

    monkeypatch.setattr(tensor_files, "write", damage)
    cfg = config("qwen2", tied=True, dtype="float32")
    with pytest.raises(RuntimeError, match="reads back differently"):
        export_model(tmp_path / "out", parameters(cfg), cfg, tokenizer())
    assert not list(tmp_path.iterdir())
