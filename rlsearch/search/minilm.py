"""all-MiniLM-L6-v2 (Wang et al., 2020; Reimers and Gurevych, 2019) in JAX, with the weights of a Python package."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from rlsearch.errors import InputError
from rlsearch.models import encoder
from rlsearch.search.minilm_weights import INSTALL, package_directory, read_config, read_params
from rlsearch.search.types import Passage

SHORTEST = 16  # tokens of the shortest length bucket; each next one is twice as long


@dataclass(frozen=True)
class MiniLMSettings:
    """How texts are cut and batched."""

    max_tokens: int  # longer texts are cut; the model was trained on up to 256
    batch_tokens: int  # padded tokens encoded at once


class MiniLMEncoder:
    """Encodes queries and passages (title, then text) alike: mean over tokens, length 1."""

    def __init__(self, directory: Path, settings: MiniLMSettings):
        """Reads ``config.json``, ``model.safetensors`` and ``tokenizer.json`` of ``directory``.

        Raises:
          InputError: a file is missing or cut short, or ``max_tokens`` does not fit the model.
        """
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            if not (directory / name).is_file():
                raise InputError(f"{directory / name}: no such file; install the encoder again: {INSTALL}")
        self.cfg = read_config(directory / "config.json")
        if not SHORTEST <= settings.max_tokens <= self.cfg.max_positions or settings.batch_tokens < settings.max_tokens:
            raise InputError(
                f"minilm: max_tokens must lie in {SHORTEST}..{self.cfg.max_positions} and batch_tokens be no smaller, "
                f"found {settings}"
            )
        self.settings, self.width = settings, self.cfg.d_model
        weights = directory / "model.safetensors"
        self.params = jax.device_put(read_params(weights, self.cfg))
        self.name = f"minilm-{settings.max_tokens}-{hashlib.sha256(weights.read_bytes()).hexdigest()[:16]}"
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(settings.max_tokens)
        self._embed = jax.jit(partial(encoder.embed, cfg=self.cfg))

    @classmethod
    def load(cls, settings: MiniLMSettings) -> MiniLMEncoder:
        """The encoder of the installed package, which is found and not imported (its own code asks for torch)."""
        return cls(package_directory(), settings)

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors f32[texts, width]."""
        rows = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))]
        out = np.empty((len(rows), self.width), np.float32)
        for length, group in self._batches([len(row) for row in rows]):
            out[group] = self._run([rows[index] for index in group], length)
        return out

    def encode_passages(self, passages: Sequence[Passage]) -> np.ndarray:
        """Unit vectors f32[passages, width] of title and text."""
        return self.encode_queries([f"{passage.title} {passage.text}" for passage in passages])

    def _batches(self, lengths: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Rows of similar length together: (padded length, indices of rows)."""
        buckets: dict[int, list[int]] = {}
        for index, length in enumerate(lengths):
            bucket = SHORTEST
            while bucket < length:
                bucket *= 2
            buckets.setdefault(min(bucket, self.settings.max_tokens), []).append(index)
        batches = []
        for bucket, indices in sorted(buckets.items()):
            rows = _power_of_two_below(self.settings.batch_tokens // bucket)
            batches += [(bucket, indices[start : start + rows]) for start in range(0, len(indices), rows)]
        return batches

    def _run(self, rows: list[list[int]], length: int) -> np.ndarray:
        """Pads to ``length`` tokens and a power of two of rows, so that few shapes are ever compiled."""
        padded_rows = 2 * _power_of_two_below(len(rows) - 1) if len(rows) > 1 else 1
        token_id = np.zeros((padded_rows, length), np.int32)
        valid = np.zeros((padded_rows, length), bool)
        valid[:, 0] = True
        for index, row in enumerate(rows):
            token_id[index, : len(row)], valid[index, : len(row)] = row, True
        vectors = self._embed(self.params, token_id=jnp.asarray(token_id), valid=jnp.asarray(valid))
        return np.asarray(vectors)[: len(rows)]


def _power_of_two_below(number: int) -> int:
    """The greatest power of two that is not above ``number`` (at least 1)."""
    return 1 << (number.bit_length() - 1)
