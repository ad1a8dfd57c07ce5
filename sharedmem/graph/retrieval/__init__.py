"""Retrieval of the context for a question from words, vectors and graph, without a language model."""
