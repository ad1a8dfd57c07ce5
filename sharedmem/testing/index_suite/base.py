"""Shared parts of the suite: a family of its own, and records written as the stores write them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeAlias

import numpy as np
import pytest

from sharedmem.clock import new_id
from sharedmem.record_family import RecordFamily
from sharedmem.redis.client import RedisClient
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.vectors import Vector, normalize, to_half
from sharedmem.search.protocol import ALL, Every, Index, IndexHit, IndexQuery
from sharedmem.text.analysis import document_terms, join_tags, namespace_term_prefix, query_terms

DIMENSION = 8
TAGS = ("ns", "user", "tags")
_PUT = """
-- KEYS record log place  ARGV id fields...
local fields = {}
for i = 2, #ARGV do fields[i - 1] = ARGV[i] end
if not redis.call('GET', KEYS[3]) then
  fields[#fields + 1] = 'pool'
  fields[#fields + 1] = '1'
end
local newest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
local version = (tonumber(newest[2]) or 1795245066000000) + 1
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('ZADD', KEYS[2], string.format('%.0f', version), ARGV[1])
return string.format('%.0f', version)
"""
_DELETE = """
-- KEYS record log  ARGV id
local newest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[2], string.format('%.0f', tonumber(newest[2]) + 1), ARGV[1])
return 1
"""
_EXPIRE = """
-- KEYS record log  ARGV id ttl_ms
local newest = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%.0f', tonumber(newest[2]) + 1), ARGV[1])
return 1
"""


def suite_family(model: str = "suite:model", dimension: int = DIMENSION) -> RecordFamily:
    """Return a family that no other test has."""
    return RecordFamily(f"suite-{new_id(6)}", TAGS, ("at", "size"), model, dimension)


def direction(*numbers: float) -> Vector:
    """Return a unit vector that begins with these numbers; the others are zero."""
    vector = np.zeros(DIMENSION, np.float32)
    vector[: len(numbers)] = numbers
    return normalize(vector)


class IndexedNamespace:
    """The records of one family in one namespace, written as the stores write them: in one step with their log.

    Args:
        line: the client of the server.
        keyspace: builds keys.
        family: the family of the records.
        namespace: the namespace of the records.
    """

    def __init__(self, line: RedisClient, keyspace: KeySpace, family: RecordFamily, namespace: str) -> None:
        self._client = line
        self._keyspace = keyspace
        self._family = family
        self._ids: set[str] = set()
        self.namespace = namespace

    async def put(
        self,
        id_: str,
        text: str = "",
        *,
        vector: Vector | None = None,
        user: str | None = None,
        tags: Iterable[str] = (),
        at: float | None = None,
        facts: bytes = b"facts",
    ) -> int:
        """Write a whole record; return its version."""
        prefix = namespace_term_prefix(self.namespace)
        fields: dict[str, str | bytes | None] = {
            "terms": " ".join(prefix + term for term in document_terms(text)),
            "vector": None if vector is None else to_half(vector),
            "facts": facts,
            "ns": self.namespace,
            "user": None if user is None else join_tags([user]),
            "tags": join_tags(tags) or None,
            "at": None if at is None else repr(at),
        }
        self._ids.add(id_)
        words = [word for name, value in fields.items() if value is not None for word in (name, value)]
        keys = (self._record(id_), self._log, self._place)
        reply = await self._client.call("EVAL", _PUT, 3, *keys, id_, *words)
        assert isinstance(reply, bytes)
        return int(reply)

    async def delete(self, id_: str) -> None:
        """Delete a record; its entry in the log stays."""
        await self._client.call("EVAL", _DELETE, 2, self._record(id_), self._log, id_)

    async def expire(self, id_: str, ttl_ms: int) -> None:
        """Let a record expire by itself."""
        await self._client.call("EVAL", _EXPIRE, 2, self._record(id_), self._log, id_, ttl_ms)

    async def exists(self, id_: str) -> bool:
        """Return whether the record exists."""
        return await self._client.call("EXISTS", self._record(id_)) == 1

    async def damage(self, id_: str) -> None:
        """Write a vector of another dimension into a record, without any checks."""
        await self._client.call("HSET", self._record(id_), "vector", b"abc")

    async def clear(self) -> None:
        """Delete all records of the namespace."""
        keys = [self._record(id_) for id_ in self._ids]
        await self._client.call("DEL", self._log, self._place, *keys)

    @property
    def _log(self) -> bytes:
        return self._keyspace.record_log(self._family.name, self.namespace)

    @property
    def _place(self) -> bytes:
        return self._keyspace.record_place(self._family.name, self.namespace)

    def _record(self, id_: str) -> bytes:
        return self._keyspace.record(self._family.name, self.namespace, id_)


OpenIndexedNamespace: TypeAlias = Callable[[str], IndexedNamespace]


class IndexFixtures:
    """Fixtures; `line`, `keyspace` and `index` come from the inheriting class."""

    @pytest.fixture
    def suite_family(self) -> RecordFamily:
        """A family of this test alone."""
        return suite_family()

    @pytest.fixture
    async def shelves(self, line: RedisClient, keyspace: KeySpace, index: Index) -> AsyncIterator[OpenIndexedNamespace]:
        """Yield a function that opens a namespace; all are cleared afterwards."""
        opened: dict[str, IndexedNamespace] = {}

        def shelf_of(namespace: str) -> IndexedNamespace:
            return opened.setdefault(namespace, IndexedNamespace(line, keyspace, index.family, namespace))

        yield shelf_of
        for shelf in opened.values():
            await index.forget(shelf.namespace)
            await shelf.clear()

    @pytest.fixture
    def shelf(self, shelves: OpenIndexedNamespace) -> IndexedNamespace:
        """The records of one namespace."""
        return shelves("team")


async def search_by_words(
    index: Index, shelf: IndexedNamespace, text: str, filters: Every = ALL, *, candidates: int = 100
) -> list[str]:
    """Return the ids that a search by words finds, best first."""
    query = IndexQuery(terms=query_terms(text), filters=filters, candidates=candidates)
    return ids_of((await index.search(shelf.namespace, query)).text)


async def search_by_vector(index: Index, shelf: IndexedNamespace, vector: Vector, filters: Every = ALL) -> list[str]:
    """Return the ids that a search by meaning finds, best first."""
    return ids_of((await index.search(shelf.namespace, IndexQuery(vector=vector, filters=filters))).vector)


def ids_of(hits: Iterable[IndexHit]) -> list[str]:
    """Return their ids, in their order."""
    return [hit.id for hit in hits]
