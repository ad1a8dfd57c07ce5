"""Checkpoints and long-term memory of LangGraph: ours beside langgraph-checkpoint-redis and beside bare redis-py.

python benchmarks/langgraph_memory.py            minutes; with the rival: pip install langgraph-checkpoint-redis
python benchmarks/langgraph_memory.py --quick    few and short rounds
python benchmarks/langgraph_memory.py --page docs/benchmarks.md

The rival needs a server with search and JSON modules, which the benchmark starts. Bare redis-py stores and reads the
same bytes under one key: what no checkpointer can be faster than with its client.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import orjson
from bench_report import Results, Row, Verdict, at_least, factor, put_on_page, save, show
from harness import Call, Effort, Fleet, Load, Opener, Server, close_sides, compare, machine, open_sides, private_server
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from redis.asyncio import Redis

from sharedmem import Hub, Settings
from sharedmem.integrations.langgraph import SharedMemSaver, SharedMemStore

FULL, QUICK = Effort(rounds=5, seconds=0.5), Effort(rounds=3, seconds=0.15)
RESULTS = Path(__file__).parent / "results" / "langgraph.json"
ONE, FIFTY = Load("1 task"), Load("50 tasks", tasks=50)
OURS, BARE, RIVAL = "sharedmem", "redis-py", "langgraph-checkpoint-redis"
PUT, GET = "put a checkpoint", "get the newest checkpoint"
STORE_PUT, STORE_GET, FILTER, MEANING = "put an item", "get an item", "search by value", "search by meaning"
BY_HUB, MEMORY = "search by meaning of the hub", "memory.search"
CONTESTS = (PUT, GET, STORE_PUT, STORE_GET, FILTER, MEANING, BY_HUB)
MOST_TIMES = 1.5
"""The most time of a search, as a multiple of one of `memory.search`."""
THREADS, USERS, ITEMS = 50, 20, 50
"""Threads that are written in turn; users, and the items of each."""
VALUE = {"text": "Ada sails on Sundays, and works in the harbour office from Monday to Friday.", "kind": "habit"}
CHANNELS = {"messages": [{"role": "user", "content": "Do the gates hold? " * 10}] * 4, "plan": ["search", "write"]}


def letters(texts: Any) -> list[list[float]]:
    """Return vectors: how often each letter is in a text. Both sides use it."""
    return [[float(text.count(letter)) + 0.1 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


INDEX: Any = {"dims": 26, "embed": letters, "fields": ["text"]}


def thread(number: int) -> Any:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": f"t{number % THREADS}", "checkpoint_ns": ""}}


def saver_calls(saver: Any) -> dict[str, Call]:
    """Return what is measured of a checkpointer."""
    versions = count(1)

    async def put(number: int) -> None:
        version = f"{next(versions):032}.x"
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6(clock_seq=0))
        checkpoint["channel_values"] = CHANNELS
        checkpoint["channel_versions"] = dict.fromkeys(CHANNELS, version)
        await saver.aput(thread(number), checkpoint, {"source": "input", "step": 1}, dict.fromkeys(CHANNELS, version))

    return {PUT: put, GET: lambda number: saver.aget_tuple(thread(number))}


def store_calls(items: Any) -> dict[str, Call]:
    """Return what is measured of a store."""

    def user(number: int) -> tuple[str, str]:
        return ("users", f"u{number % USERS}")

    return {
        STORE_PUT: lambda number: items.aput(user(number), f"k{number % ITEMS}", VALUE, index=False),
        STORE_GET: lambda number: items.aget(user(number), f"k{number % ITEMS}"),
        FILTER: lambda number: items.asearch(user(number), filter={"kind": "job"}, limit=10),
        MEANING: lambda number: items.asearch(user(number), query="harbour office", limit=10),
    }


async def fill(saver: Any, items: Any) -> None:
    """Store what is there from the start."""
    put = saver_calls(saver)[PUT]
    for number in range(THREADS * 3):
        await put(number)
    for user in range(USERS):
        for number in range(ITEMS):
            value = VALUE | {"kind": "job" if number % 10 == 0 else "habit", "text": f"{VALUE['text']} {number}"}
            await items.aput(("users", f"u{user}"), f"k{number}", value)


@asynccontextmanager
async def open_ours(contest: str, url: str) -> AsyncIterator[Call]:
    """Open our side."""
    async with Hub.open(settings=Settings(redis_url=url, embedder="hashing")) as hub:
        store = hub.store("bench")
        index: Any = {"fields": ["text"]} if contest == BY_HUB else INDEX
        saver, items = SharedMemSaver(store), SharedMemStore(store, index=index)
        await fill(saver, items)
        calls = saver_calls(saver) | store_calls(items)
        yield (calls | {BY_HUB: calls[MEANING]})[contest]


@asynccontextmanager
async def open_memory(contest: str, url: str) -> AsyncIterator[Call]:
    """Open semantic memory of the same texts, by the same embedder."""
    del contest
    async with Hub.open(settings=Settings(redis_url=url, embedder="hashing")) as hub:
        memory = hub.store("memory").memory
        texts = [(user, f"{VALUE['text']} {number}") for user in range(USERS) for number in range(ITEMS)]
        await memory.add_many([{"content": text, "user_id": f"u{user}"} for user, text in texts], dedup=False)
        yield lambda number: memory.search("harbour office", limit=10, filters={"user_id": f"u{number % USERS}"})


@asynccontextmanager
async def open_rival(contest: str, url: str) -> AsyncIterator[Call]:
    """Open langgraph-checkpoint-redis."""
    from langgraph.checkpoint.redis.aio import AsyncRedisSaver  # noqa: PLC0415  # only where it is installed
    from langgraph.store.redis.aio import AsyncRedisStore  # noqa: PLC0415  # likewise

    async with (
        AsyncRedisSaver.from_conn_string(url) as saver,
        AsyncRedisStore.from_conn_string(url, index=INDEX) as items,
    ):
        await saver.asetup()
        await items.setup()
        await fill(saver, items)
        yield (saver_calls(saver) | store_calls(items))[contest]


@asynccontextmanager
async def open_bare(contest: str, url: str) -> AsyncIterator[Call]:
    """Open a plain client, which stores the same bytes under one key."""
    checkpoint, item = orjson.dumps([CHANNELS, "x" * 400]), orjson.dumps(VALUE)
    async with Redis.from_url(url) as client:
        for number in range(USERS * ITEMS):
            await client.set(f"c{number % THREADS}", checkpoint)
            await client.set(f"k{number}", item)
        calls: dict[str, Callable[[int], Awaitable[object]]] = {
            PUT: lambda number: client.set(f"c{number % THREADS}", checkpoint),
            GET: lambda number: client.get(f"c{number % THREADS}"),
            STORE_PUT: lambda number: client.set(f"k{number % (USERS * ITEMS)}", item),
            STORE_GET: lambda number: client.get(f"k{number % (USERS * ITEMS)}"),
        }
        yield calls[contest]


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Memory of LangGraph: ours, its own for Redis, bare redis-py.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    asked = parser.parse_args()
    has_rival = find_spec("langgraph.checkpoint.redis") is not None
    if not has_rival:
        print("langgraph-checkpoint-redis is not installed: compared with redis-py alone", file=sys.stderr)
    with private_server() as server, Fleet(1) as fleet:
        results = Results(machine() | {"server": server.version}, asked.quick)
        for contest in CONTESTS:
            measure(fleet, server, QUICK if asked.quick else FULL, results, contest, has_rival=has_rival)
    goals = [*(verdicts(results) if has_rival else []), *search_verdicts(results)]
    show(results, goals, title="sharedmem / others, for LangGraph")
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="langgraph")
    return 0


def measure(fleet: Fleet, server: Server, effort: Effort, results: Results, contest: str, *, has_rival: bool) -> None:
    """Compare one call, alone and with 50 at once."""
    server.empty()
    url = server.urls["tcp"]
    sides: dict[str, Opener] = {OURS: partial(open_ours, contest, url)}
    if contest == BY_HUB:
        sides[MEMORY] = partial(open_memory, contest, url)
    elif contest not in {FILTER, MEANING}:
        sides[BARE] = partial(open_bare, contest, url)
    if has_rival and contest != BY_HUB:
        sides[RIVAL] = partial(open_rival, contest, url)
    fleet.ask(1, open_sides, sides)
    for load in (ONE, FIFTY):
        print(f"{contest}, {load.name}", file=sys.stderr, flush=True)
        compared = compare(fleet, server, [*sides], load, effort)
        for other in (each for each in sides if each != OURS):
            figures = compared.medians(OURS), compared.medians(other), compared.ratios(OURS, other)
            results.rows.append(Row(f"{contest} / {other}", other, load.name, "tcp", other, *figures))
    fleet.ask(1, close_sides)


def verdicts(results: Results) -> list[Verdict]:
    """Return the goals: at 50 tasks three times the puts and gets of the rival."""
    return [
        at_least(results.find(f"{contest} / {RIVAL}", FIFTY), f"{contest}, 50 tasks: three times {RIVAL}", 3)
        for contest in (PUT, GET, STORE_PUT, STORE_GET)
    ]


def search_verdicts(results: Results) -> list[Verdict]:
    """Return the goals: a search takes at most one and a half times as long as one of memory."""
    rows = [row for load in (ONE, FIFTY) for row in results.find(f"{BY_HUB} / {MEMORY}", load)]
    goal = f"{BY_HUB}, {' and '.join(row.load for row in rows)}: p50 within {MOST_TIMES} times {MEMORY}"
    found = [row.ratios.p50_us for row in rows]
    return [Verdict(goal, ", ".join(map(factor, found)), max(found) <= MOST_TIMES)] if found else []


if __name__ == "__main__":
    sys.exit(main())
