"""Scoring: in which order what was found is told. Pure functions; nothing here waits for anything.

The way of a search, for whoever carries it out (`knowledge/memory/searching.py`):

1. `embedded = speakers_removed(query, authors)` is what to embed; `authors` are those of the namespace or thread.
   The words to look for come from the whole query.
2. `found` is what the index answers.
3. `wanted_neighbours(found, recipe)` tells which turns to ask for, as `{thread: [(low, high), ...]}`, merged closed
   ranges of turn indexes; empty when nothing found is a turn of a conversation, and then there is nothing to ask.
4. `rank(query, found, neighbours, recipe, now_ms=..., explain=False)` gives all that was found **and the neighbours
   that gained by it**, best first: no filter has seen these neighbours, so whoever fetches them checks them.

Whoever writes a memory indexes the words of `indexed_text(item)` and keeps `facts_of(item, position)` beside it.
"""

from sharedmem.knowledge.scoring.facts import Facts, decode_facts
from sharedmem.knowledge.scoring.ranking import Neighbours, Ranked, rank, wanted_neighbours
from sharedmem.knowledge.scoring.recipe import Recipe
from sharedmem.knowledge.scoring.words import facts_of, indexed_text, speakers_removed

__all__ = [
    "Facts",
    "Neighbours",
    "Ranked",
    "Recipe",
    "decode_facts",
    "facts_of",
    "indexed_text",
    "rank",
    "speakers_removed",
    "wanted_neighbours",
]
