"""Reading whichever tokenizer a directory holds."""

from __future__ import annotations

from pathlib import Path

from rlsearch.tokenization import byte_bpe_files, spm
from rlsearch.tokenization.types import Tokenizer


def load(directory: Path) -> Tokenizer:
    """BPE where ``tokenizer.json`` says so, else SentencePiece from ``tokenizer.model``.

    Gemma has both files, of which the second is a BPE that SentencePiece runs; the first says the same and more.

    Raises:
      InputError: neither is there, or what is there cannot be used.
    """
    directory = Path(directory)
    if not (directory / spm.MODEL_FILE).is_file() or byte_bpe_files.is_bpe(directory):
        return byte_bpe_files.load(directory)
    return spm.load(directory)
