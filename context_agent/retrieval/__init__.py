"""Retrieval: corpora and search. Knows no agent and no language model."""
