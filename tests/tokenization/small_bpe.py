"""A small byte-level BPE with two special tokens, one added word and a chat template."""

from __future__ import annotations

import functools
import json

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from rlsearch.tokenization import byte_bpe_files
from rlsearch.tokenization.byte_bpe import ByteBPETokenizer
from rlsearch.tokenization.hub_files import plain_config
from rlsearch.tokenization.tags import TAGS
from tests.tokenization.names import names, sentences

CHAT = (
    "{% for message in messages %}{{ '<|start|>' + message['role'] + '\n' + message['content'] + '<|end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)


@functools.cache
def _document() -> str:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(sentences(200, seed=0, names=names(50, seed=0)), trainer)
    tokenizer.add_special_tokens(["<|start|>", "<|end|>"])
    tokenizer.add_tokens([TAGS[2]])
    return tokenizer.to_str()


def small_bpe() -> ByteBPETokenizer:
    """The tokenizer; ``<|end|>`` ends texts and pads, ``<|start|>`` ends texts too."""
    document = json.loads(_document())
    end = next(token["id"] for token in document["added_tokens"] if token["content"] == "<|end|>")
    return ByteBPETokenizer(
        document, pad_id=end, eos_ids=(end, end - 1), config={**plain_config(), "chat_template": CHAT}
    )


def scored_metadata() -> dict:
    """A vocabulary as Gemma's files describe theirs: control tokens, bytes, a run of spaces, scored pieces."""
    pieces = ["\u2581", "a", "b", "c", "ab", "abc", "\u2581a", "\u2581abc", "é"]
    tokens = ["<pad>", "<eos>", "<unk>", "<start>", "\u2581\u2581", *(f"<0x{i:02X}>" for i in range(256)), *pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 261 + [-float(i) for i in range(len(pieces))],
        "tokenizer.ggml.token_type": [3, 3, 2, 3, 4] + [6] * 256 + [1] * len(pieces),
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 2,
        "tokenizer.chat_template": CHAT,
    }


@functools.cache
def scored_bpe() -> ByteBPETokenizer:
    """The tokenizer that this describes."""
    return byte_bpe_files.from_gguf(scored_metadata(), where="model.gguf")
