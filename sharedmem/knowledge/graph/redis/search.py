"""Searching a group: each search becomes a query of the index that all records of graphs share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from sharedmem.knowledge.graph.naming import spelled_group
from sharedmem.knowledge.graph.records import Candidate, Hits, Letter, Search
from sharedmem.knowledge.graph.redis.ground import RedisGround
from sharedmem.knowledge.graph.redis.rows import at_ms, shelf
from sharedmem.search.filters import Between, Condition, Every, Tagged
from sharedmem.search.protocol import Candidate as Found
from sharedmem.search.protocol import Query
from sharedmem.wire.service_keys import damaged

_LETTERS: dict[bytes, Letter] = {letter.encode(): letter for letter in get_args(Letter)}
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
        return [Hits(self._candidates(each.text, start), self._candidates(each.vector, start)) for each in found]

    def _candidates(self, found: Iterable[Found], start: int) -> list[Candidate]:
        candidates = []
        for hit in found:
            letter = _LETTERS.get(hit.facts)
            if letter is None:
                raise damaged(self._record(hit.id), f"its field 'facts' is {hit.facts[:40]!r}")
            candidates.append(Candidate(hit.id[start:], letter, hit.score))
        return candidates


def _query(group: str, search: Search) -> Query:
    conditions: list[Condition] = [Tagged("shelf", tuple(shelf(group, letter) for letter in search.letters))]
    if search.session is not None:
        conditions.append(Tagged("session", (search.session,)))
    if search.since is not None or search.until is not None:
        low, high = (None if stamp is None else at_ms(stamp) for stamp in (search.since, search.until))
        conditions.append(Between("at", low, high))
    return Query(search.terms, search.vector, Every(tuple(conditions)), search.candidates, COMMONEST)
