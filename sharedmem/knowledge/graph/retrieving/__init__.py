"""The context for a question, out of words, meaning and graph, without a language model."""
