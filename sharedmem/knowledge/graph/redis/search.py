"""Searching a group: each search becomes a query of the index that all records of graphs share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from sharedmem.knowledge.graph.naming import spelled_group
from sharedmem.knowledge.graph.records import Candidate, Hits, Letter, Search
from sharedmem.knowledge.graph.redis.ground import RedisGround
from sharedmem.knowledge.graph.redis.rows import at_ms, shelf
from sharedmem.search.filters import Between, Condition, Every, Tagged
from sharedmem.search.protocol import Candidate as Found
from sharedmem.search.protocol import Query

COMMONEST = 2000
"""Records that may hold a word which is looked for where rarer ones find something: each costs the server a
microsecond or two for every search, and a word in so many of them tells little."""


class Searching(RedisGround):
    """Finds records by their words and by their meaning."""

    async def search(self, group: str, searches: Sequence[Search]) -> list[Hits]:
        """See `GraphBackend.search`. One round trip; more as `Index.search` says."""
        queries = [_query(group, search) for search in searches]
        start = len(spelled_group(group)) + len("/e/")
        found = await self._minds.graphs.search_each(self._namespace, queries)
        return [Hits(_candidates(each.text, start), _candidates(each.vector, start)) for each in found]


def _query(group: str, search: Search) -> Query:
    conditions: list[Condition] = [Tagged("shelf", tuple(shelf(group, letter) for letter in search.letters))]
    if search.session is not None:
        conditions.append(Tagged("session", (search.session,)))
    if search.since is not None or search.until is not None:
        low, high = (None if stamp is None else at_ms(stamp) for stamp in (search.since, search.until))
        conditions.append(Between("at", low, high))
    return Query(search.terms, search.vector, Every(tuple(conditions)), search.candidates, COMMONEST)


def _candidates(found: Iterable[Found], start: int) -> list[Candidate]:
    return [Candidate(hit.id[start:], cast("Letter", hit.facts.decode()), hit.score) for hit in found]
