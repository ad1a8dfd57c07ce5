"""Conversations beside bare redis-py, which pushes the same bytes to a list and reads them.

python benchmarks/conversations.py            two minutes
python benchmarks/conversations.py --quick    few and short rounds
python benchmarks/conversations.py --page docs/benchmarks.md

A list has no revision, ids, state, index, change feed or retries that have one effect: it is what no log in Redis can
be faster than with that client.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
from bench_report import Results, Row, Verdict, at_least, put_on_page, save, show
from harness import Call, Effort, Fleet, Load, Opener, Server, close_sides, compare, machine, open_sides, private_server
from redis.asyncio import Redis

from sharedmem import Hub, Settings

FULL, QUICK = Effort(rounds=7, seconds=0.5), Effort(rounds=3, seconds=0.15)
RESULTS = Path(__file__).parent / "results" / "conversations.json"
ONE, FIFTY = Load("1 task"), Load("50 tasks", tasks=50)
OURS, BARE = "sharedmem", "redis-py"
APPEND, TO_ONE, WITH_ID, READ = (
    "append an entry",
    "append to one log",
    "append with an id",
    "read the last 20 of 10,000",
)
COMMANDS = {APPEND: "RPUSH", TO_ONE: "RPUSH", WITH_ID: "RPUSH", READ: "LRANGE"}
LOGS, LENGTH, PAGE, ENTRY_BYTES = 50, 10_000, 20, 200
TEXT = "x" * (ENTRY_BYTES - 2)
LEAST_APPENDS, MOST_READ_TIME, MOST_BYTES = 3.0, 1.5, 1.6


@dataclass
class ConversationResults(Results):
    """The measurements, and the memory of an entry."""

    entry_bytes: dict[int, float] = field(default_factory=dict)
    """By the length of the log: bytes at the server for an entry of 200 bytes with a UUID as id."""

    def extra(self) -> dict[str, Any]:
        """Return the memory for the JSON file."""
        return {"entry_bytes": self.entry_bytes, "payload_bytes": ENTRY_BYTES}

    def page_extra(self) -> Iterable[str]:
        """Return a line on memory for the page."""
        for length, size in self.entry_bytes.items():
            times = size / ENTRY_BYTES
            yield ""
            what = f"an entry of {ENTRY_BYTES} bytes with a UUID"
            yield f"In a log of {length:,}, {what} takes {size:.0f} bytes: {times:.2f} x."


@asynccontextmanager
async def open_ours(contest: str, url: str) -> AsyncIterator[Call]:
    """Open our side."""
    async with Hub.open(settings=Settings(redis_url=url, durable_url="none")) as hub:
        talks = hub.store("bench", actor="ada").conversations
        if contest == READ:
            for _ in range(LENGTH // 1000):
                await talks.append("long", [TEXT] * 1000)
        calls: dict[str, Call] = {
            APPEND: lambda number: talks.append(f"t{number % LOGS}", [TEXT]),
            TO_ONE: lambda _: talks.append("t", [TEXT]),
            WITH_ID: lambda number: talks.append(f"t{number % LOGS}", [TEXT], entry_ids=[str(uuid4())]),
            READ: lambda _: talks.read("long", last=PAGE),
        }
        yield calls[contest]


@asynccontextmanager
async def open_bare(contest: str, url: str) -> AsyncIterator[Call]:
    """Open a plain client, which pushes the same bytes."""
    body = orjson.dumps(TEXT)
    async with Redis.from_url(url) as client:
        for _ in range(LENGTH // 1000 if contest == READ else 0):
            await client.rpush("long", *[body] * 1000)
        calls: dict[str, Callable[[int], Awaitable[object]]] = {
            APPEND: lambda number: client.rpush(f"t{number % LOGS}", body),
            TO_ONE: lambda _: client.rpush("t", body),
            WITH_ID: lambda number: client.rpush(f"t{number % LOGS}", body),
            READ: lambda _: client.lrange("long", -PAGE, -1),
        }
        yield calls[contest]


async def entry_memory(url: str) -> dict[int, float]:
    """Return the bytes at the server for an entry with an id, by the length of the log."""
    async with Hub.open(settings=Settings(redis_url=url, durable_url="none")) as hub:
        talks = hub.store("memory", actor="ada").conversations
        found = {}
        for length in (1000, LENGTH):
            for _ in range(length // 1000):
                await talks.append(f"c{length}", [TEXT] * 1000, entry_ids=[str(uuid4()) for _ in range(1000)])
            stats = await talks.stats(f"c{length}")
            assert stats is not None
            found[length] = stats.bytes / length
        return found


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Conversations beside lists of redis-py.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--only", action="append", choices=list(COMMANDS), help="measure only this call")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    asked = parser.parse_args()
    with private_server() as server, Fleet(1) as fleet:
        results = ConversationResults(machine() | {"server": server.version}, asked.quick)
        for contest in asked.only or COMMANDS:
            measure(fleet, server, QUICK if asked.quick else FULL, results, contest)
        server.empty()
        results.entry_bytes = asyncio.run(entry_memory(server.urls["tcp"]))
    goals = verdicts(results)
    show(results, goals, title="sharedmem / redis-py, for conversations")
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="conversations")
    return 0


def measure(fleet: Fleet, server: Server, effort: Effort, results: Results, contest: str) -> None:
    """Compare one call, alone and with 50 at once."""
    server.empty()
    url = server.urls["tcp"]
    sides: dict[str, Opener] = {OURS: partial(open_ours, contest, url), BARE: partial(open_bare, contest, url)}
    fleet.ask(1, open_sides, sides)
    for load in (ONE, FIFTY):
        print(f"{contest}, {load.name}", file=sys.stderr, flush=True)
        compared = compare(fleet, server, [*sides], load, effort)
        figures = compared.medians(OURS), compared.medians(BARE), compared.ratios(OURS, BARE)
        results.rows.append(Row(contest, COMMANDS[contest], load.name, "tcp", BARE, *figures))
    fleet.ask(1, close_sides)


def verdicts(results: ConversationResults) -> list[Verdict]:
    """Return the goals: appends at 50 tasks, the time of a read, the memory of an entry."""
    return [
        at_least(results.find(APPEND, FIFTY), f"{APPEND}, 50 tasks: three times RPUSH", LEAST_APPENDS),
        *(
            at_least(results.find(READ, load), f"{READ}, {load.name}: within 1.5 times LRANGE", 1 / MOST_READ_TIME)
            for load in (ONE, FIFTY)
        ),
        *(
            Verdict(
                f"memory of an entry of 200 bytes with an id, of {length:,}: 1.6 times its bytes",
                f"{size / ENTRY_BYTES:.2f} x",
                size / ENTRY_BYTES <= MOST_BYTES,
            )
            for length, size in results.entry_bytes.items()
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
