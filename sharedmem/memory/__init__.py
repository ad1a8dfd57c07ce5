"""Semantic memory: what agents remember, and find again."""
