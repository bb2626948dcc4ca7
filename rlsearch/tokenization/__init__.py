"""SentencePiece and byte-level BPE behind one protocol, text templates and the tag grammar."""
