"""The index on the server's query engine: the whole suite, and what only a server can get wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sharedmem import Settings
from sharedmem.clock import SystemClock, new_id
from sharedmem.search.protocol import Family
from sharedmem.search.redisearch import RediSearchIndex
from sharedmem.testing.index_suite import IndexSuite
from sharedmem.wire.address import read_address
from sharedmem.wire.connection import open_line
from sharedmem.wire.keys import KeySpace
from sharedmem.wire.line import Line


@pytest.fixture
async def line(redis_url: str, settings: Settings) -> AsyncIterator[Line]:
    line = open_line(read_address(redis_url, settings), settings, SystemClock())
    await line.open()
    yield line
    await line.close()


@pytest.fixture
def keyspace() -> KeySpace:
    return KeySpace("sm", new_id(8))


@pytest.fixture
async def index(
    line: Line, keyspace: KeySpace, suite_family: Family, settings: Settings
) -> AsyncIterator[RediSearchIndex]:
    yield RediSearchIndex(line, keyspace, suite_family, settings, on_cluster=False)
    for status in await RediSearchIndex(line, keyspace, suite_family, settings, on_cluster=False).status():
        await line.call("FT.DROPINDEX", status.name)


class TestRediSearchIndex(IndexSuite):
    """The suite, on indexes of each test's own."""
