"""Extraction of entities and statements from episodes, by rules or by a language model."""
