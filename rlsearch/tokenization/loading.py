"""Reading whichever tokenizer a directory holds."""

from __future__ import annotations

from pathlib import Path

from rlsearch.tokenization import byte_bpe_files, spm
from rlsearch.tokenization.types import Tokenizer


def load(directory: Path) -> Tokenizer:
    """The SentencePiece tokenizer where there is a ``tokenizer.model``, else byte-level BPE from ``tokenizer.json``.

    Raises:
      InputError: neither is there, or what is there cannot be used.
    """
    directory = Path(directory)
    return spm.load(directory) if (directory / spm.MODEL_FILE).is_file() else byte_bpe_files.load(directory)
