"""A server with and one without a query engine, a provider that can fail, and a memory on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import numpy as np
import pytest
from redis import Redis

from sharedmem import Hub
from sharedmem.embedded.binaries import find_server
from sharedmem.memory.memories import Memories
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embeddings, Purpose
from support.faulty_hubs import impatient_settings
from support.redis_process import RedisProcess

FACTS = (
    "The deploy of the billing service needs two approvals.",
    "Invoices are sent on the last Friday of each month.",
    "Our zebra mascot is called Marvin.",
)
ZEBRA = FACTS[2]


class FaultyEmbedder:
    """A hashing embedder that can be away, refuse to answer, or make vectors that are none."""

    name = "test:provider"
    dimension = 64

    def __init__(self) -> None:
        self.error: Callable[[], Exception | None] = lambda: None
        self.spoil: Callable[[Embeddings], Embeddings] = lambda made: made
        self.open = asyncio.Event()
        self.open.set()
        self._inner = HashingEmbedder(self.dimension)

    def fail(self, error: Exception | None) -> None:
        """Fail each request with this error; None ends it."""
        self.error = lambda: error

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:
        """See `Embedder.embed`."""
        await self.open.wait()
        if (error := self.error()) is not None:
            raise error
        return self.spoil(await self._inner.embed(texts, purpose=purpose))

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture(scope="module", params=["exact", "redisearch"])
def index_server(request: pytest.FixtureRequest) -> Iterator[RedisProcess]:
    """A real server that can search, and one that cannot."""
    if request.param == "exact":
        with RedisProcess() as server:
            yield server
        return
    if "search" not in (modules := find_server().modules):
        pytest.skip("the search module is not installed on this platform")
    with RedisProcess(loadmodule=modules["search"]) as server:
        yield server


@pytest.fixture
def server(index_server: RedisProcess) -> RedisProcess:
    """It is empty."""
    index_server.tell("FLUSHALL")
    return index_server


@pytest.fixture
def raw(server: RedisProcess) -> Iterator[Redis]:
    """A plain client of it."""
    with server.client() as client:
        yield client


@pytest.fixture
def provider() -> FaultyEmbedder:
    return FaultyEmbedder()


@pytest.fixture
async def hub(server: RedisProcess, provider: FaultyEmbedder) -> AsyncIterator[Hub]:
    async with Hub(settings=impatient_settings(server.url), embedder=provider) as hub:
        yield hub


@pytest.fixture
def memory(hub: Hub) -> Memories:
    return hub.store("team", actor="ann").memory


def counter_value(hub: Hub, name: str) -> float:
    return sum(count.value for count in hub.counters.snapshot() if count.name == f"sharedmem_{name}")


async def texts_by_meaning(memory: Memories, text: str = ZEBRA) -> list[str]:
    """What a search by meaning alone finds; nothing when it had to fall back to words."""
    hits = await memory.search_semantic(text, threshold=0.9)
    return [] if hits.degraded else [hit.item.memory for hit in hits]


async def finds_by_meaning(memory: Memories) -> bool:
    return await texts_by_meaning(memory) == [ZEBRA]


def corrupt_record(raw: Redis, key: str, how: str) -> None:
    """Do to a record what no client of ours does."""
    match how:
        case "a text":
            raw.set(key, "junk")
        case "a list":
            raw.delete(key)
            raw.rpush(key, "junk")
        case "no fields":
            raw.hdel(key, "body", "version")
        case "short vector":
            raw.hset(key, "vector", b"abc")
        case "no numbers":
            raw.hset(key, "vector", np.full(64, np.nan, np.float16).tobytes())
        case _:
            field, _, value = how.partition("=")
            raw.hset(key, field, value)
