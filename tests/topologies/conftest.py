"""What the tests of a Redis Cluster share: one cluster for each module."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from support.topologies import RedisCluster, redis_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """One cluster for this module; its processes belong to no event loop."""
    loop = asyncio.new_event_loop()
    context = redis_cluster()
    yield loop.run_until_complete(context.__aenter__())
    loop.run_until_complete(context.__aexit__(None, None, None))
    loop.close()
