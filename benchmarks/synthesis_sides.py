"""The sides of the benchmark of synthesis: our pipeline, the bare commands behind it, and queries."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import cast

from harness import Call, WorkerState
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from synthesis_data import APP, DIMENSION, StubModel, SubjectEmbedder, conversation, filled_notes, question, user_of

from sharedmem import Hub, Settings
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embedder, LanguageModel
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.vectors import to_half
from sharedmem.synthesis.synthesis import Synthesis

QUERIES = "queries"
"""The namespace of the notes for queries; each pipeline has a namespace of its own."""
_QUEUE, _INDEX, _NEAREST = "bare:queue", "bare", 12
_MANY_QUESTIONS = 200
_SCHEMA = (
    "app TAG user TAG status TAG vector VECTOR FLAT 6 TYPE FLOAT16 DIM",
    str(DIMENSION),
    "DISTANCE_METRIC COSINE",
)


def query_embedder() -> Embedder:
    """Return the embedder of questions and their notes, for both sides."""
    return HashingEmbedder(DIMENSION)


@asynccontextmanager
async def _opened(
    url: str, namespace: str, embedder: Embedder, model: LanguageModel | None, *, hands: int = 4
) -> AsyncIterator[Hub]:
    settings = Settings(redis_url=url, durable_url="none", synthesis_concurrency=hands, namespace=namespace)
    async with Hub.open(settings=settings, embedder=embedder, model=model) as hub:
        yield hub


# -- adding ----------------------------------------------------------------------------------------


@asynccontextmanager
async def accept(url: str) -> AsyncIterator[Call]:
    """Have a memory accepted: no worker runs."""
    numbers = count()
    async with _opened(url, "accept", SubjectEmbedder(), StubModel(), hands=0) as hub:
        synthesis = hub.store("accept").synthesis

        async def call(_: int) -> object:
            number = next(numbers)
            return await synthesis.add_memory(app_id=APP, user_id=user_of(number), messages=conversation(number))

        yield call


@asynccontextmanager
async def accept_bare(url: str) -> AsyncIterator[Call]:
    """Put the same into a list."""
    numbers = count()
    async with Redis.from_url(url, protocol=2) as client:
        yield lambda _: client.rpush(_QUEUE, _spelled(next(numbers)))


def _spelled(number: int) -> str:
    return json.dumps({"app_id": APP, "user_id": user_of(number), "messages": conversation(number)})


@asynccontextmanager
async def note(url: str, namespace: str, *, by_rules: bool = False) -> AsyncIterator[Call]:
    """Add a memory about a new subject, and wait for its note."""
    async with _finishing(url, namespace, by_rules=by_rules) as (synthesis, numbers):
        yield lambda _: _finished(synthesis, 2 * next(numbers))


@asynccontextmanager
async def pair(url: str, namespace: str, *, by_rules: bool = False) -> AsyncIterator[Call]:
    """Add a memory, wait for its note, add another one about the same, and wait until both are consolidated."""
    async with _finishing(url, namespace, by_rules=by_rules) as (synthesis, numbers):

        async def call(_: int) -> object:
            number = 2 * next(numbers)
            await _finished(synthesis, number)
            return await _finished(synthesis, number + 1, user=user_of(number))

        yield call


@asynccontextmanager
async def _finishing(url: str, namespace: str, *, by_rules: bool) -> AsyncIterator[tuple[Synthesis, Iterator[int]]]:
    async with _opened(url, namespace, SubjectEmbedder(), None if by_rules else StubModel()) as hub:
        synthesis = hub.store(namespace).synthesis
        await synthesis.warm_up()
        yield synthesis, count()


async def _finished(synthesis: Synthesis, number: int, user: str = "") -> object:
    task = await synthesis.add_memory(
        app_id=APP, user_id=user or user_of(number // 2), messages=conversation(number), task_id=f"task-{number}"
    )
    done = await synthesis.wait(task.task_id)
    if done.status != "done":
        raise RuntimeError(f"memory {number} was not made: {done.error}")
    return done.result


@asynccontextmanager
async def note_bare(url: str) -> AsyncIterator[Call]:
    """Send the least commands of a memory: queue it, claim it, search its neighbours, write its note."""
    numbers, embedder = count(), SubjectEmbedder()
    async with Redis.from_url(url, protocol=2) as client:
        await _indexed(client)

        async def call(_: int) -> object:
            number = next(numbers)
            text = _spelled(2 * number)
            await client.rpush(_QUEUE + ":worked", text)
            await client.lpop(_QUEUE + ":worked")
            vector = to_half((await embedder.embed([text])).vectors[0])
            nearest = f"(@app:{{bench}} @user:{{u{number % 10}}})=>[KNN {_NEAREST} @vector $v AS d]"
            asked = ("FT.SEARCH", _INDEX, nearest, "PARAMS", "2", "v", vector, "NOCONTENT", "DIALECT", "2")
            await client.execute_command(*asked)  # type: ignore[no-untyped-call]  # the library's
            fields = ["app", "bench", "user", f"u{number % 10}", "status", "active", "text", text]
            return await client.hset(f"bare:note:{number}", items=[*fields, "vector", vector])

        yield call


async def _indexed(client: Redis) -> None:
    schema = " ".join(_SCHEMA).split()
    try:
        await client.execute_command("FT.CREATE", _INDEX, "PREFIX", "1", "bare:note:", "SCHEMA", *schema)  # type: ignore[no-untyped-call]  # the library's
    except ResponseError as error:
        if "exists" not in str(error):
            raise


# -- queries ---------------------------------------------------------------------------------------


async def filled(_: WorkerState, url: str, size: int) -> None:
    """Run a job: store so many notes, without the pipeline."""
    async with _opened(url, QUERIES, query_embedder(), None) as hub:
        await filled_notes(hub.store(QUERIES), size, query_embedder())


@asynccontextmanager
async def query(url: str) -> AsyncIterator[Call]:
    """Query notes."""
    async with _opened(url, QUERIES, query_embedder(), None) as hub:
        synthesis = hub.store(QUERIES).synthesis
        yield lambda number: synthesis.query_memory(app_id=APP, query=question(number))


@asynccontextmanager
async def query_bare(url: str) -> AsyncIterator[Call]:
    """Send the commands of such a query to the query engine, by redis-py."""
    async with _opened(url, QUERIES, query_embedder(), None) as hub:
        synthesis = hub.store(QUERIES).synthesis
        with _listening(hub) as found:
            for number in range(_MANY_QUESTIONS):
                if not await synthesis.query_memory(app_id=APP, query=question(number)):
                    raise RuntimeError(f"question {number} finds nothing")
    async with Redis.from_url(url, protocol=2) as client:
        yield lambda number: client.execute_command(*found[number % len(found)])  # type: ignore[no-untyped-call]  # the library's


@contextmanager
def _listening(hub: Hub) -> Iterator[list[Command]]:
    """Record the searches of a hub in the block."""
    line = hub._knowledge_context().client  # noqa: SLF001  # no public method shows what is sent
    found: list[Command] = []
    send = line.read_many

    async def read_many(commands: Sequence[Command], *, aside: bool = False) -> list[Reply]:
        found.extend(command for command in commands if command[0] == "FT.SEARCH")
        return await send(commands, aside=aside)

    line.read_many = read_many  # type: ignore[method-assign]  # it records, and changes nothing
    try:
        yield found
    finally:
        line.read_many = send  # type: ignore[method-assign]  # likewise


# -- round trips -----------------------------------------------------------------------------------


async def repeated(desk: WorkerState, side: str, times: int) -> None:
    """Run a job: call an open side so often, one after the other."""
    call = cast("Call", desk.calls[side])
    for number in range(times):
        await call(number)
