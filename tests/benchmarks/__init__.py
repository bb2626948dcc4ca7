"""Benchmarks: ``python -m tests.benchmarks.<name>`` prints one JSON object on its last line."""
