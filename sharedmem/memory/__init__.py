"""Semantic memory: sentences that agents store and find again by meaning and by words."""
