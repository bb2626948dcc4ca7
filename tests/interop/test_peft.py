"""Adapters as the package peft reads and writes them. Needs torch, transformers and peft: `make setup-all`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlsearch.interop.adapter import export_adapter, import_adapter
from rlsearch.interop.export import export_model
from rlsearch.models import decoder, lora
from tests.interop.small import config, parameters, tokenizer
from tests.models import adapters

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="needs torch: make setup-all")
transformers = pytest.importorskip("transformers", reason="needs transformers: make setup-all")
peft = pytest.importorskip("peft", reason="needs peft: make setup-all")

CASES = [("llama", True), ("llama", False), ("qwen2", True), ("qwen2", False), ("qwen3_moe", True)]
MODULES = {name: f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")}
MODULES |= {"embed": "embed_tokens", "head": "lm_head"}


def ours(params, cfg, ids) -> np.ndarray:
    tokens = jnp.asarray([ids], jnp.int32)
    hidden = decoder.apply(
        params, cfg, token_id=tokens, position=jnp.arange(len(ids))[None], token_end=jnp.full_like(tokens, len(ids)),
        remat=False, attention="dense",
    )  # fmt: skip
    return np.asarray(decoder.logits(params, cfg, hidden)[0])


def theirs(model, ids) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def far(found: np.ndarray, expected: np.ndarray) -> float:
    return np.abs(found - expected).max() / np.abs(expected).max()


def based(tmp_path, family: str, *, tied: bool):
    """A small model, exported and read by transformers, and ids to read."""
    cfg = config(family, tied=tied, dtype="float32")
    export_model(tmp_path / "base", parameters(cfg), cfg, tokenizer())
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "base", dtype=torch.float32, attn_implementation="eager"
    )
    return cfg, model.eval(), np.random.default_rng(0).integers(cfg.vocab_size, size=60).tolist()


@pytest.mark.parametrize(("family", "tied"), CASES)
def test_peft_gives_our_adapter_the_same_logits(tmp_path, family, tied):
    """Beside the matrices, and merged by either."""
    cfg, base, ids = based(tmp_path, family, tied=tied)
    what = adapters.config(cfg, rank=3, alpha=4.0)
    adapter = adapters.noisy(cfg, what)
    export_adapter(tmp_path / "adapter", adapter, cfg, what, base=str(tmp_path / "base"))
    params, plain = {**parameters(cfg), **adapter}, theirs(base, ids)
    model = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    expected = theirs(model, ids)
    assert far(plain, expected) > 0.05
    assert far(ours(lora.attach(params, what), cfg, ids), expected) < 2e-4
    assert far(ours(lora.merge(params, what), cfg, ids), theirs(model.merge_and_unload(), ids)) < 2e-4


@pytest.mark.parametrize(("family", "tied"), CASES)
def test_an_adapter_that_peft_made_is_read(tmp_path, family, tied):
    cfg, base, ids = based(tmp_path, family, tied=tied)
    what = adapters.config(cfg)
    torch.manual_seed(0)
    made = peft.LoraConfig(
        r=5, lora_alpha=8, target_modules=[MODULES[name] for name in what.matrices], init_lora_weights=False,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    model = peft.get_peft_model(base, made).eval()
    model.save_pretrained(tmp_path / "theirs", save_embedding_layers=False)
    read, adapter = import_adapter(tmp_path / "theirs", cfg)
    assert (read.rank, read.alpha, set(read.matrices)) == (5, 8.0, set(what.matrices))
    adapter = jax.tree.map(jnp.asarray, adapter)
    assert far(ours(lora.attach({**parameters(cfg), **adapter}, read), cfg, ids), theirs(model, ids)) < 2e-4
