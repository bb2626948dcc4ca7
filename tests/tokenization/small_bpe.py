"""A small byte-level BPE with two special tokens, one added word and a chat template."""

from __future__ import annotations

import functools
import json

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

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
