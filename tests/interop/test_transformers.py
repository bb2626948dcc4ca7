"""Exports as transformers reads them. Everything here needs torch and transformers, which `make setup-all` installs."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.models import FAMILIES
from rlsearch.interop.export import export_model
from rlsearch.interop.gguf import import_gguf, smollm2_path
from rlsearch.interop.load import import_reward_model
from rlsearch.models import decoder, reward
from rlsearch.tokenization.tags import TAGS
from rlsearch.tokenization.template import SEARCH_R1_INSTRUCTION, ChatTemplate
from tests.interop.small import NAMES, config, parameters, tokenizer
from tests.tokenization.small_bpe import scored_bpe, small_bpe

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch", reason="needs torch: make setup-all")
transformers = pytest.importorskip("transformers", reason="needs transformers: make setup-all")

TEXTS = [
    "", " ", "  two  spaces ", "tabs\tand\n\nlines\r\n", "trailing   \n", "don't, it's; we'll", "1234 5.6e7 ٣٤ \uff14",
    "Ελληνικά русский עברית العربية हिन्दी বাংলা ไทย 中文 日本語 한국어 ქართული Հայերեն አማርኛ ខ្មែរ",
    "emoji 😀 👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 ❤\ufe0f", "e\u0301 é \u200b \ufeff \u00a0 \u3000 ﬁ",
    "\x00\x01\x7f", "<0x0A> <0x41>", "https://a.b/c?d=e&f#g",
    " ".join(TAGS), "".join(TAGS), f"<search> where is {NAMES[0]}?</search><information>{NAMES[1]} is near {NAMES[2]}.",
    "def f(x):\n    return x ** 2  # ok", "</s><pad><unk>", "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
]  # fmt: skip


def _logits(params, cfg, ids) -> np.ndarray:
    tokens = jnp.asarray(ids, jnp.int32)[None]
    position = jnp.arange(len(ids))[None]
    with jax.numpy_rank_promotion("allow"):
        hidden = decoder.apply(
            params,
            cfg,
            token_id=tokens,
            position=position,
            token_end=jnp.full_like(tokens, len(ids)),
            remat=False,
            attention="dense",
        )
        return np.asarray(decoder.logits(params, cfg, hidden)[0])


def _assert_same_logits(params, cfg, model, ids, tolerance):
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0].float().numpy()
    ours = _logits(params, cfg, ids)
    difference = np.abs(ours - theirs).max() / np.abs(theirs).max()
    assert difference <= tolerance
    return theirs


def _load(directory, *, dtype):
    # Only the plain attention of transformers caps scores.
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager")
    model.eval()
    return model, transformers.AutoTokenizer.from_pretrained(directory)


YARN = {"kind": "yarn", "factor": 4.0, "low": 1.0, "high": 32.0, "original_positions": 64}
CASES = [(family, tied, {}) for family in FAMILIES for tied in (True, False)]
CASES += [(family, True, {"rope_scaling": YARN}) for family in ("qwen2", "qwen3")]


@pytest.mark.parametrize(("family", "tied", "changes"), CASES)
def test_small_export_gives_the_same_logits(tmp_path, family, tied, changes):
    cfg = config(family, tied=tied, dtype="float32", **changes)
    params = parameters(cfg)
    export_model(tmp_path / "out", params, cfg, tokenizer())
    model, _ = _load(tmp_path / "out", dtype=torch.float32)
    ids = np.random.default_rng(0).integers(cfg.vocab_size, size=100).tolist()
    theirs = _assert_same_logits(params, cfg, model, ids, 2e-4)
    assert theirs.std() > 0.1
    assert type(model.config).__name__.lower().startswith(family.split("_")[0])
    assert model.generation_config.eos_token_id == 2
    said = model.generate(torch.tensor([ids[:20]]), max_new_tokens=64, do_sample=False, eos_token_id=-1)[0].tolist()
    assert len(said) == 84 and _continue(params, cfg, ids[:20], 64) == said[20:]


def _continue(params, cfg, ids, count) -> list[int]:
    """What the policy says greedily, token by token through its cache."""

    with jax.numpy_rank_promotion("allow"):
        cache = decoder.empty_cache(cfg, slots=1, capacity=len(ids) + count)
        said, new, at = [], ids, 0
        while len(said) < count:
            token, cache = _next(params, cfg, cache, jnp.asarray([new]), jnp.asarray([at]))
            at, new = at + len(new), [int(token)]
            said += new
    return said


@functools.partial(jax.jit, static_argnames="cfg")
def _next(params, cfg, cache, new, start):
    hidden, cache = decoder.extend(params, cfg, cache, token_id=new, start=start)
    return decoder.logits(params, cfg, hidden[0, -1]).argmax(), cache


def test_bfloat16_export_loads_as_bfloat16(tmp_path):
    cfg = config("qwen2", tied=True, dtype="bfloat16")
    params = parameters(cfg)
    export_model(tmp_path / "out", params, cfg, tokenizer())
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.dtype == torch.bfloat16
    norm = model.model.norm.weight.float().detach().numpy()
    np.testing.assert_array_equal(norm, np.asarray(params["final_norm"]["scale"], np.float32))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reward_model_scores_as_transformers_do(tmp_path, family):
    """A classifier of one label, of sequences of several lengths."""
    torch.manual_seed(0)
    export_model(tmp_path / "trunk", parameters(_small(family)), _small(family), tokenizer())
    theirs = transformers.AutoModelForSequenceClassification.from_config(
        transformers.AutoConfig.from_pretrained(tmp_path / "trunk", num_labels=1), attn_implementation="eager"
    ).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 and "gemma" not in family else 0.0, 0.1)
    theirs.save_pretrained(tmp_path / "model")
    cfg, params = import_reward_model(tmp_path / "model")
    rng, pad = np.random.default_rng(0), theirs.config.pad_token_id
    ids, length = rng.integers(10, cfg.vocab_size, size=(3, 30)), np.array([30, 11, 2])
    index = np.broadcast_to(np.arange(30), ids.shape)
    ids = np.where(index < length[:, None], ids, pad)
    with torch.no_grad():
        want = theirs(torch.tensor(ids), attention_mask=torch.tensor(index < length[:, None])).logits[:, 0].numpy()
    with jax.numpy_rank_promotion("allow"):
        found = reward.score(
            params, cfg, token_id=ids, position=index, token_end=np.full_like(index, 30), last=length[:, None] - 1,
            remat=False, attention="dense",
        )  # fmt: skip
    assert np.abs(found[:, 0] - want).max() <= 2e-4 * np.abs(want).max()
    assert want.std() > 0.05


def _small(family):
    return config(family, tied=True, dtype="float32")


@pytest.mark.parametrize(
    ("family", "make"),
    [
        *((family, make) for family in ("qwen2", "llama") for make in (tokenizer, small_bpe)),
        ("qwen3_moe", small_bpe),
        ("gemma2", scored_bpe),
        ("gemma3_text", scored_bpe),
    ],
)
def test_auto_tokenizer_gives_the_same_ids(tmp_path, family, make):
    ours = make()
    cfg = dataclasses.replace(config(family, tied=True, dtype="float32"), vocab_size=ours.vocab_size)
    export_model(tmp_path / "out", parameters(cfg), cfg, ours)
    for trust in (False, True):
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", trust_remote_code=trust)
        _assert_same_ids(ours, theirs)


def _assert_same_ids(ours, theirs):
    assert (theirs.eos_token_id, theirs.pad_token_id) == (ours.eos_ids[0], ours.pad_id)
    for text in TEXTS:
        ids = ours.encode_control(text)
        assert theirs.encode(text, add_special_tokens=False) == ids == theirs(text)["input_ids"], text
        assert theirs.decode(ids) == ours.decode(ids) == text


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    cfg, params, ours = import_gguf(smollm2_path())
    directory = tmp_path_factory.mktemp("smollm2") / "out"
    export_model(directory, params, cfg, ours)
    return cfg, params, ours, directory


@pytest.fixture(scope="module")
def original():
    """SmolLM2 as transformers itself reads it from the GGUF file."""
    pytest.importorskip("accelerate", reason="transformers needs accelerate for GGUF: make setup-all")
    path = smollm2_path()
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()


def test_smollm2_logits_equal_those_of_transformers(smollm2, original):
    cfg, params, ours, _ = smollm2
    ids = ChatTemplate(instruction=SEARCH_R1_INSTRUCTION, examples=()).prompt_ids(
        ours, "What is the capital of France?"
    )
    theirs = _assert_same_logits(params, cfg, original, ids, 2e-4)
    assert "Paris" not in ours.decode(ids) and theirs.shape[1] == cfg.vocab_size


def test_smollm2_tokenizer_ids_equal_those_of_the_export(smollm2):
    _, _, ours, directory = smollm2
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    _assert_same_ids(ours, theirs)
    messages = [{"role": "user", "content": "Name a river."}]
    prompt = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert ChatTemplate(instruction="", examples=()).prompt_ids(ours, "Name a river.") == ours.encode_control(prompt)


def test_smollm2_export_continues_like_the_original(smollm2, original):
    cfg, params, ours, directory = smollm2
    exported, theirs = _load(directory, dtype=torch.float32)
    ids = ChatTemplate(instruction="", examples=()).prompt_ids(ours, "What is the capital of France?")
    said = [
        model.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False, eos_token_id=list(ours.eos_ids))[0]
        for model in (original, exported)
    ]
    assert said[0].tolist() == said[1].tolist()
    answer = said[1][len(ids) :].tolist()
    assert ours.decode(answer) == theirs.decode(answer) == "The capital of France is Paris.<|im_end|>"
    greedy = _logits(params, cfg, said[1].tolist()).argmax(-1)[len(ids) - 1 : -1]
    assert greedy.tolist() == answer
    more = exported.generate(torch.tensor([ids]), max_new_tokens=64, do_sample=False, eos_token_id=-1)[0].tolist()
    assert _continue(jax.tree.map(jnp.asarray, params), cfg, ids, 64) == more[len(ids) :]
