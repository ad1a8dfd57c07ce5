"""Embedders that ask the local server: what the tests of providers over HTTP share.

A module takes a fixture by giving it a name there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from sharedmem.config import Settings
from sharedmem.providers.embedding import CachedEmbedder
from sharedmem.providers.factory import open_embedder
from sharedmem.runtime import Counters
from sharedmem.testing.clock import ManualClock
from support.openai_server import KEY, OpenAIServer, openai_server

MODEL = "openai:text-embedding-3-small"
SHORT = 16


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with openai_server() as server:
        yield server


@pytest.fixture
def settings(server: OpenAIServer) -> Settings:
    return Settings(
        embedder=MODEL,
        embedding_url=server.url,
        embedding_key=SecretStr(KEY),
        embedding_dimension=SHORT,
        provider_retry_for_s=0.9,
    )


def opened(settings: Settings, clock: ManualClock, counters: Counters) -> CachedEmbedder:
    embedder = open_embedder(settings, clock, counters)
    assert embedder is not None
    return embedder


@pytest.fixture
async def embedder(settings: Settings, clock: ManualClock, counters: Counters) -> AsyncIterator[CachedEmbedder]:
    embedder = opened(settings, clock, counters)
    yield embedder
    await embedder.close()


async def lasting(
    settings: Settings, clock: ManualClock, counters: Counters, **chosen: object
) -> AsyncIterator[CachedEmbedder]:
    embedder = opened(settings.replace(**chosen), clock, counters)
    yield embedder
    await embedder.close()


@pytest.fixture
async def patient(settings: Settings, clock: ManualClock, counters: Counters) -> AsyncIterator[CachedEmbedder]:
    """An embedder that tries for a minute."""
    async for embedder in lasting(settings, clock, counters, provider_retry_for_s=60):
        yield embedder


@pytest.fixture
async def hasty(settings: Settings, clock: ManualClock, counters: Counters) -> AsyncIterator[CachedEmbedder]:
    """An embedder that waits half a second."""
    async for embedder in lasting(settings, clock, counters, provider_timeout_s=0.5):
        yield embedder
