"""rlsearch: reinforcement learning for language models that search, in JAX."""
