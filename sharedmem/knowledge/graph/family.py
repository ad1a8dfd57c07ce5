"""How the records of graphs are found."""

from __future__ import annotations

from sharedmem.search.protocol import Family

GRAPH = "graph"
TAGS = ("ns", "shelf", "session")
NUMBERS = ("at",)
"""`at`: milliseconds since 1970 of the start of a fact, or of when an episode occurred."""
_CARE = 100
"""An episode brings some seven vectors. With 100 instead of 200 each costs half as much, and of the 50 nearest 99.5 in
100 are still found."""


def graph_family(model: str, dimension: int) -> Family:
    """How episodes, entities and facts are found, with the vectors of an embedder."""
    return Family(GRAPH, TAGS, NUMBERS, model, dimension, care=_CARE)
