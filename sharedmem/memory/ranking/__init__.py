"""Scoring: in which order what was found is told. Pure functions; nothing here waits for anything.

The way of a search, for whoever carries it out (`memory/search.py`):

1. `embedded = speakers_removed(query, authors)` is what to embed; `authors` are those of the namespace or thread.
   The words to look for come from the whole query.
2. `found` is what the index answers.
3. `neighbour_ranges(found, recipe)` tells which turns to ask for, as `{thread: [(low, high), ...]}`, merged closed
   ranges of turn indexes; empty when nothing found is a turn of a conversation, and then there is nothing to ask.
4. `rank(query, found, neighbours, recipe, now_ms=..., explain=False)` gives all that was found **and the neighbours
   that gained by it**, best first: no filter has seen these neighbours, so whoever fetches them checks them.

A writer of memories indexes the words of `indexed_text(item)` and keeps `ranking_features(item, position)` beside it.
"""

from sharedmem.memory.ranking.features import (
    RankingFeatures,
    decode_features,
    indexed_text,
    ranking_features,
    remove_speakers,
)
from sharedmem.memory.ranking.ranker import NeighbourTurns, RankedMemory, neighbour_ranges, rank
from sharedmem.memory.ranking.weights import RankingWeights

__all__ = [
    "NeighbourTurns",
    "RankedMemory",
    "RankingFeatures",
    "RankingWeights",
    "decode_features",
    "indexed_text",
    "neighbour_ranges",
    "rank",
    "ranking_features",
    "remove_speakers",
]
