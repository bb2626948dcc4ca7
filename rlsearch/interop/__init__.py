"""Hugging Face checkpoints in and out, GGUF in, by one table of names read both ways."""
