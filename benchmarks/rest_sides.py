"""The sides of the benchmark of REST: our service, the bare one, and the library without any service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import orjson
from harness import Call, WorkerState
from redis.asyncio import Redis
from rest_services import EMBEDDER, NAMESPACE
from rest_wire import HttpClient, Versions
from synthesis_data import APP, filled_notes, question

from sharedmem import Hub, Settings
from sharedmem.faces.auth import Bearer, Rate, add_entry, new_token
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.store import SharedMemoryStore

KEYS = 1_000
NOTES = 1_000
_RATE = "100000/s"


def value_of(number: int) -> dict[str, object]:
    """Return a value of about 200 bytes, as agents share them."""
    return {
        "task": f"task {number}",
        "state": "running",
        "progress": 0.25,
        "assigned": ["planner", "researcher"],
        "note": "waits for the figures of the third quarter, which finance has promised for Thursday morning",
    }


def token_in(path: Path) -> str:
    """Return a token of an actor with a rate limit that it does not reach; its registry entry goes into a file."""
    token, entry = new_token(Bearer.of(NAMESPACE, actor="bench"), rate=Rate.of(_RATE))
    add_entry(path, entry)
    return token


def _key(number: int) -> str:
    return f"{NAMESPACE}:shared:value-{number % KEYS}"


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[SharedMemoryStore]:
    settings = Settings(redis_url=url, durable_url="none", embedder=EMBEDDER, namespace=NAMESPACE)
    async with Hub.open(settings=settings) as hub:
        yield hub.store(NAMESPACE)


async def filled(_: WorkerState, url: str) -> None:
    """Run a job: write the values for both sides, and notes for queries."""
    async with _opened(url) as store, Redis.from_url(url, protocol=2) as client:
        await store.write_many({_key(number): value_of(number) for number in range(KEYS)})
        await client.mset({f"bare-{number}": orjson.dumps(value_of(number)) for number in range(KEYS)})
        await filled_notes(store, NOTES, HashingEmbedder())


# -- reading and writing ---------------------------------------------------------------------------


@asynccontextmanager
async def read_over_rest(service: str, token: str = "") -> AsyncIterator[Call]:
    """Read a value from our service."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with HttpClient(service, headers) as client:
        asked = [client.spelled("GET", f"/api/v1/store/values/{_key(number)}/value") for number in range(KEYS)]
        yield lambda number: client.send(asked[number % KEYS])


@asynccontextmanager
async def read_bare(service: str) -> AsyncIterator[Call]:
    """Read a value from the bare service."""
    async with HttpClient(service) as client:
        asked = [client.spelled("GET", f"/values/bare-{number}") for number in range(KEYS)]
        yield lambda number: client.send(asked[number % KEYS])


@asynccontextmanager
async def read_in_process(url: str) -> AsyncIterator[Call]:
    """Read a value from the library."""
    async with _opened(url) as store:
        yield lambda number: store.read(_key(number))


@asynccontextmanager
async def write_over_rest(service: str) -> AsyncIterator[Call]:
    """Write a value to our service."""
    async with HttpClient(service) as client:

        def call(number: int) -> Awaitable[bytes]:
            body = orjson.dumps({"value": value_of(number)})
            return client.send(client.spelled("PUT", f"/api/v1/store/values/{_key(number)}", body))

        yield call


@asynccontextmanager
async def write_bare(service: str) -> AsyncIterator[Call]:
    """Write a value to the bare service."""
    async with HttpClient(service) as client:

        def call(number: int) -> Awaitable[bytes]:
            body = orjson.dumps(value_of(number))
            return client.send(client.spelled("PUT", f"/values/bare-{number % KEYS}", body))

        yield call


@asynccontextmanager
async def write_in_process(url: str) -> AsyncIterator[Call]:
    """Write a value to the library."""
    async with _opened(url) as store:
        yield lambda number: store.write(_key(number), value_of(number))


# -- queries and events ----------------------------------------------------------------------------


@asynccontextmanager
async def query_over_rest(service: str) -> AsyncIterator[Call]:
    """Query notes through our service."""
    async with HttpClient(service) as client:

        def call(number: int) -> Awaitable[bytes]:
            asked = f"app_id={quote(APP)}&query={quote(question(number))}"
            return client.send(client.spelled("GET", f"/api/v1/memories/query?{asked}"))

        yield call


@asynccontextmanager
async def query_in_process(url: str) -> AsyncIterator[Call]:
    """Query notes through the library."""
    async with _opened(url) as store:
        yield lambda number: store.synthesis.query_memory(app_id=APP, query=question(number))


@asynccontextmanager
async def event_over_rest(service: str, url: str) -> AsyncIterator[Call]:
    """Measure from the begin of a write to its event."""
    async with _opened(url) as store, HttpClient(service) as client, client.changes("/api/v1/changes") as versions:
        yield lambda number: _written_and_received(store, number, versions)


@asynccontextmanager
async def event_in_process(url: str) -> AsyncIterator[Call]:
    """Measure from the begin of a write to its change on another hub in the same process."""
    async with _opened(url) as store, _opened(url) as other:
        versions = Versions()
        cursor = await other.cursor()
        task = asyncio.create_task(_watched(other, cursor, versions))
        try:
            yield lambda number: _written_and_received(store, number, versions)
        finally:
            task.cancel()


async def _watched(store: SharedMemoryStore, cursor: str, versions: Versions) -> None:
    async for change in store.watch(since=cursor):
        versions.advance(change.version)


async def _written_and_received(store: SharedMemoryStore, number: int, versions: Versions) -> None:
    await versions.reach(await store.write(_key(number), value_of(number)))
