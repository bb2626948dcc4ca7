"""Corpora, text encoders and retrievers: ``Retriever.search(queries, k=...) -> Hits``."""
