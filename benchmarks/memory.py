"""Semantic memory against the bare commands behind it: search, additions, the semantic cache, both indexes.

python benchmarks/memory.py            10,000 and 100,000 memories, half an hour or so
python benchmarks/memory.py --quick    10,000 memories, few and short rounds
python benchmarks/memory.py --page docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

from bench_report import Results, Row, Verdict, factor, put_on_page, save, show
from harness import Call, Effort, Fleet, Load, Server, WorkerState, close_sides, compare, machine, open_sides
from harness import private_server as started_server
from memory_data import (
    DIMENSION,
    QUERIES,
    SMALL_VOCABULARY,
    TableEmbedder,
    english_words,
    fill,
    item_of,
    queries,
    settings_of,
    short_item,
    small_item,
    text_of,
    words,
)
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from sharedmem import Hub, MemoryFilter, Settings
from sharedmem.cache.repository import FIELDS, CacheQuery
from sharedmem.cache.repository import cache_query as asked_in
from sharedmem.memory.memories import Memories
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Command, Reply
from sharedmem.redis.vectors import to_half
from sharedmem.search.exact_index import ExactIndex

FULL, QUICK = Effort(rounds=7, seconds=1.0), Effort(rounds=3, seconds=0.3)
RESULTS = Path(__file__).parent / "results" / "memory.json"
ONE, FIFTY = Load("1 task"), Load("50 tasks", tasks=50)
OURS, BARE, EXACT, WITHOUT_DEDUP = "sharedmem", "bare", "exact index", "sharedmem, dedup=False"
MANY = 10_000
_FEW, _ADDING_S = 10_000, 0.15
"""Of so few memories, additions would soon make many: they are filled anew before, and rounds are short."""
NAMESPACE, TWIN = "bench", "twin"
"""Our namespace, and that of the bare commands: both have the same content, each with an index of its own."""
# A number for each addition, unique in this process and in the namespace.
_numbers = count(10_000_000)


class Bulk(NamedTuple):
    """Ten thousand memories at once, against as many pipelined HSET."""

    size: int
    ours_per_s: float
    bare_per_s: float
    ratio: float


class Space(NamedTuple):
    """The memory that one stored memory takes in the server."""

    size: int
    bytes_per_item: float


class Measured(NamedTuple):
    """A figure that is no ratio, with its goal."""

    what: str
    value: float
    unit: str
    goal: float
    at_least: bool
    """Whether a higher figure is better."""

    @property
    def is_met(self) -> bool:
        """Whether the goal is met."""
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass
class MemoryResults(Results):
    """All measurements of a run of memory."""

    bulks: list[Bulk] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)

    def extra(self) -> dict[str, Any]:
        """Return further data for the JSON file."""
        return {
            "bulks": [one._asdict() for one in self.bulks],
            "spaces": [one._asdict() for one in self.spaces],
            "measured": [one._asdict() for one in self.measured],
        }

    def page_extra(self) -> Iterator[str]:
        """Yield bulk loads and space, as tables."""
        yield from ("", f"### {MANY:,} at once", "")
        yield "| memories there | added a second | bare HSET, pipelined | ratio |"
        yield "|---:|---:|---:|---:|"
        for bulk in self.bulks:
            yield f"| {bulk.size:,} | {bulk.ours_per_s:,.0f} | {bulk.bare_per_s:,.0f} | {factor(bulk.ratio)} |"
        yield from ("", "### Space", "", "| memories | bytes each | beyond the vector |", "|---:|---:|---:|")
        for space in self.spaces:
            beyond = space.bytes_per_item - 2 * DIMENSION
            yield f"| {space.size:,} | {space.bytes_per_item:,.0f} | {beyond:,.0f} |"
        yield from ("", "### Figures of their own", "", "| what | measured | goal |", "|---|---:|---:|")
        for one in self.measured:
            goal = f"{'at least' if one.at_least else 'at most'} {one.goal:,g} {one.unit}"
            yield f"| {one.what} | {one.value:,.4g} {one.unit} | {goal} |"


def main() -> int:
    """Measure the contests of the command line."""
    asked = _arguments()
    effort = QUICK if asked.quick else FULL
    with started_server() as server, Fleet(1) as fleet:
        results = MemoryResults(machine() | {"server": server.version}, asked.quick)
        for size in asked.sizes or ([10_000] if asked.quick else [10_000, 100_000]):
            _measure(fleet, server, effort, results, size, tuple(asked.only or ()))
        if not asked.only:
            _measure_alone(fleet, server, results)
    goals = verdicts(results)
    show(results, goals, title="semantic memory / bare commands")
    show_bulks(results)
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="memory")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What semantic memory costs above the bare commands.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--sizes", type=int, nargs="*", metavar="N", help="memories that are there (10,000 100,000)")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="contests whose names begin so; no bulk, no page")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    return parser.parse_args()


def show_bulks(results: MemoryResults) -> None:
    """Print bulk loads and space."""
    table = Table(title=f"{MANY:,} memories at once, and the space of each")
    for name in ("memories there", "added a second", "bare", "ratio", "bytes each"):
        table.add_column(name, justify="right")
    for bulk, space in zip(results.bulks, results.spaces, strict=False):
        rates = f"{bulk.ours_per_s:,.0f}", f"{bulk.bare_per_s:,.0f}", factor(bulk.ratio)
        table.add_row(f"{bulk.size:,}", *rates, f"{space.bytes_per_item:,.0f}")
    Console().print(table)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure(
    fleet: Fleet, server: Server, effort: Effort, results: MemoryResults, size: int, only: tuple[str, ...] = ()
) -> None:
    url = server.urls["unix"]
    results.spaces.append(_fill_both(fleet, server, size))
    contests: list[tuple[str, str, str, dict[str, Any]]] = [
        ("recall, hybrid, filtered", "FT.SEARCH pair", BARE, {OURS: recall, BARE: bare_recall}),
    ]
    if size <= _FEW:
        fleet.ask(1, answered, url, size)
        contests.append(("cache check, a miss", "KNN", BARE, {OURS: cache_check, BARE: bare_knn}))
        contests.append(("cache check, the same prompt", "HMGET", BARE, {OURS: cache_hit, BARE: bare_hmget}))
        contests.append(("recall, exact index", "RediSearch", OURS, {EXACT: recall_exactly, OURS: recall}))
    contests.append(("add", "HSET", BARE, {OURS: add, WITHOUT_DEDUP: add_without_dedup, BARE: bare_add}))
    contests.append(("add, near ones looked for", "HSET + KNN", BARE, {OURS: add, BARE: bare_add_and_look}))
    for name, command, rival, sides in contests:
        if only and not name.startswith(only):
            continue
        chosen = effort
        if size <= _FEW and name.startswith("add"):
            _fill_both(fleet, server, size)
            chosen = replace(effort, seconds=_ADDING_S)
        fleet.ask(1, open_sides, {side: partial(opener, url, size) for side, opener in sides.items()})
        for load in (ONE, FIFTY):
            _say(f"{size:,}: {name}, {load.name}")
            compared = compare(fleet, server, list(sides), load, chosen)
            for side in sides:
                if side != rival:
                    title = f"{name}, {size:,}" + (" (no dedup)" if side == WITHOUT_DEDUP else "")
                    figures = compared.medians(side), compared.medians(rival), compared.ratios(side, rival)
                    results.rows.append(Row(title, command, load.name, "unix", rival, *figures))
        fleet.ask(1, close_sides)
    if only:
        return
    if size <= _FEW:
        _fill_both(fleet, server, size)
    _say(f"{size:,}: {MANY:,} at once")
    results.bulks += fleet.ask(1, bulk, url, size, 1 if results.quick else 3)


def _fill_both(fleet: Fleet, server: Server, size: int) -> Space:
    """Fill both namespaces anew, and return the space of a memory."""
    url = server.urls["unix"]
    server.empty()
    _say(f"{size:,} memories, twice")
    before = server.memory_bytes()
    fleet.ask(1, filled, url, NAMESPACE, size)
    space = Space(size, (server.memory_bytes() - before) / size)
    fleet.ask(1, filled, url, TWIN, size)
    return space


def _measure_alone(fleet: Fleet, server: Server, results: MemoryResults) -> None:
    """Measure what has no bare counterpart."""
    url = server.urls["unix"]
    server.empty()
    _say(f"{MANY:,} memories of 20 words, with the default embedder")
    results.measured += fleet.ask(1, default_embedder, url, dedup=True)
    server.empty()
    before = server.memory_bytes()
    fleet.ask(1, default_embedder, url, dedup=False)
    each = (server.memory_bytes() - before) / MANY
    results.measured.append(Measured("a memory of 20 words", each, "bytes", 2_200, at_least=False))
    server.empty()
    size = MANY if results.quick else 10 * MANY
    _say(f"{size:,} memories of {SMALL_VOCABULARY} words")
    (found,) = fleet.ask(1, small_vocabulary, url, size)
    results.measured += found


async def default_embedder(_: WorkerState, url: str, *, dedup: bool) -> Measured:
    """Run a job: ten thousand memories at once, with the default embedder."""
    vocabulary = english_words()
    settings = Settings(redis_url=url, durable_url="none")
    async with Hub.open(settings=settings) as hub:
        memory = hub.store(NAMESPACE).memory
        # The embedder and the scripts are loaded before.
        await memory.add_many([short_item(next(_numbers), vocabulary) for _ in range(100)])
        items = [short_item(number, vocabulary) for number in range(MANY)]
        began = time.perf_counter()
        await memory.add_many(items, dedup=dedup)
        rate = MANY / (time.perf_counter() - began)
    return Measured(f"{MANY:,} at once, default embedder", rate, "a second", 8_000, at_least=True)


async def small_vocabulary(_: WorkerState, url: str, size: int) -> list[Measured]:
    """Run a job: additions and searches where very many memories contain each word."""
    vocabulary = words()[:SMALL_VOCABULARY]
    chosen = random.Random(5)
    asked = [" ".join(chosen.choices(vocabulary, k=8)) for _ in range(QUERIES)]
    of = f"{size:,} of {SMALL_VOCABULARY} words"
    async with _hub(url, size) as hub:
        memory = hub.store(NAMESPACE).memory
        items = [small_item(number, vocabulary) for number in range(size)]
        began = time.perf_counter()
        await memory.add_many(items, dedup=False)
        added = size / (time.perf_counter() - began)
        await hub.index.promote(NAMESPACE)

        async def search(count: int) -> list[float]:
            spent = []
            for number in range(count):
                begun = time.perf_counter()
                await memory.search(asked[number % QUERIES])
                spent.append(time.perf_counter() - begun)
            return spent

        await search(QUERIES)
        alone = median(await search(2 * QUERIES)) * 1_000
        began = time.perf_counter()
        await asyncio.gather(*(search(QUERIES) for _ in range(16)))
        together = 16 * QUERIES / (time.perf_counter() - began)
    return [
        Measured(f"{of}: added", added, "a second", 5_000, at_least=True),
        Measured(f"{of}: a search, p50", alone, "ms", 6, at_least=False),
        Measured(f"{of}: searches of 16 tasks", together, "a second", 400, at_least=True),
    ]


async def answered(_: WorkerState, url: str, size: int) -> None:
    """Run a job: put answers into the cache."""
    async with _hub(url, size) as hub:
        cache = hub.store(NAMESPACE).cache
        for first in range(0, size, 500):
            await asyncio.gather(*(cache.put(f"prompt number {first + number}", "an answer") for number in range(500)))
        if size > hub.settings.promote_above:
            await hub.index.promote(NAMESPACE, family="cache")


async def filled(_: WorkerState, url: str, namespace: str, size: int) -> None:
    """Run a job: fill a namespace."""
    await fill(url, namespace, size)


# -- sides -----------------------------------------------------------------------------------------


@asynccontextmanager
async def _hub(url: str, size: int) -> AsyncIterator[Hub]:
    async with Hub.open(settings=settings_of(url, size), embedder=TableEmbedder()) as hub:
        yield hub


@asynccontextmanager
async def recall(url: str, size: int) -> AsyncIterator[Call]:
    """Search through the library."""
    asked = queries(words())
    async with _hub(url, size) as hub:
        memory = hub.store(NAMESPACE).memory
        yield lambda number: memory.search(asked[number % len(asked)], filters=_of_user(number))


@asynccontextmanager
async def recall_exactly(url: str, size: int) -> AsyncIterator[Call]:
    """Search through the index that needs no search module."""
    asked = queries(words())
    async with _hub(url, size) as hub:
        store = hub.store(NAMESPACE)
        minds = hub._knowledge_context()  # noqa: SLF001  # only here does a server with search go without
        index = ExactIndex(minds.client, minds.keyspace, minds.memories.family, minds.clock)
        memory = Memories(replace(minds, memories=index), store._scope)  # noqa: SLF001  # likewise
        yield lambda number: memory.search(asked[number % len(asked)], filters=_of_user(number))


@asynccontextmanager
async def bare_recall(url: str, size: int) -> AsyncIterator[Call]:
    """Send only the two searches, in one pipeline, and ignore their replies."""
    commands = await _pairs(url, size)
    async with Redis.from_url(url, protocol=2) as client:

        async def call(number: int) -> object:
            pipe = client.pipeline(transaction=False)
            for command in commands[number % len(commands)]:
                pipe.execute_command(*command)
            return await pipe.execute()

        yield call


async def _pairs(url: str, size: int) -> list[list[Command]]:
    """Return the two searches, by words and by meaning, that the library sends for each question and user.

    They are those of the namespace of the bare side. The library sends two more, for standing memories.
    """
    asked = queries(words())
    async with _hub(url, size) as hub:
        memory = hub.store(TWIN).memory
        with _record_commands(hub) as found:
            for number in range(len(asked) * len(_FILTERS)):
                await memory.search(asked[number % len(asked)], filters=_FILTERS[number % len(_FILTERS)])
    return [searches[:2] for searches in found]


@contextmanager
def _record_commands(hub: Hub) -> Iterator[list[list[Command]]]:
    """Record the searches of each call of a hub in the block."""
    line, found = hub._knowledge_context().client, []  # noqa: SLF001  # no public method shows what is sent
    send = line.read_many

    async def read_many(commands: Sequence[Command], *, aside: bool = False) -> list[Reply]:
        searches = [command for command in commands if command[0] == "FT.SEARCH"]
        if searches:
            found.append(searches)
        return await send(commands, aside=aside)

    line.read_many = read_many  # type: ignore[method-assign]  # it records, and changes nothing
    try:
        yield found
    finally:
        line.read_many = send  # type: ignore[method-assign]  # likewise


@asynccontextmanager
async def cache_check(url: str, size: int) -> AsyncIterator[Call]:
    """Look up a prompt that is not in the cache: by its hash, then by its meaning."""
    async with _hub(url, size) as hub:
        cache = hub.store(NAMESPACE).cache
        yield lambda number: cache.check(f"question {number}")


@asynccontextmanager
async def bare_knn(url: str, size: int) -> AsyncIterator[Call]:
    """Send only the search for the nearest."""
    async with _hub(url, size) as hub:
        with _record_commands(hub) as found:
            for number in range(500):
                await hub.store(NAMESPACE).cache.check(f"question {number}")
    async with Redis.from_url(url, protocol=2) as client:
        yield lambda number: _sent(client, found[number % len(found)][0])


def _sent(client: Redis, command: Command) -> Awaitable[object]:
    answer: Awaitable[object] = client.execute_command(*command)  # type: ignore[no-untyped-call]  # the library's
    return answer


@asynccontextmanager
async def cache_hit(url: str, size: int) -> AsyncIterator[Call]:
    """Look up a prompt that is in the cache."""
    async with _hub(url, size) as hub:
        cache = hub.store(NAMESPACE).cache
        yield lambda number: cache.check(f"prompt number {number % size}")


@asynccontextmanager
async def bare_hmget(url: str, size: int) -> AsyncIterator[Call]:
    """Send only the read."""
    keyspace = KeySpace("sm", client="bench")
    keys = [keyspace.record("cache", NAMESPACE, query_of(f"prompt number {number}").id) for number in range(size)]
    async with Redis.from_url(url, protocol=2) as client:
        yield lambda number: _sent(client, ("HMGET", keys[number % size], *FIELDS))


@asynccontextmanager
async def add(url: str, size: int, *, dedup: bool = True) -> AsyncIterator[Call]:
    """Add new memories."""
    vocabulary = words()
    texts = [text_of(number, vocabulary) for number in range(1_000)]
    async with _hub(url, size) as hub:
        memory = hub.store(NAMESPACE).memory

        async def call(_: int) -> object:
            number = next(_numbers)
            text, user, thread = f"{texts[number % 1_000]} n{number}", f"user-{number % 10}", f"thread-{number % 100}"
            return await memory.add(text, dedup=dedup, user_id=user, thread_id=thread, category="note")

        yield call


@asynccontextmanager
async def add_without_dedup(url: str, size: int) -> AsyncIterator[Call]:
    """Add memories without deduplication."""
    async with add(url, size, dedup=False) as call:
        yield call


@asynccontextmanager
async def bare_add(url: str, _: int) -> AsyncIterator[Call]:
    """Send one HSET with the same fields, in the same kind of index."""
    async with Redis.from_url(url, protocol=2) as client:
        command = await _hset_of(client)
        yield lambda _: _sent(client, command(next(_numbers)))


@asynccontextmanager
async def bare_add_and_look(url: str, _: int) -> AsyncIterator[Call]:
    """Send one KNN, wait for it, and then send one HSET: what an addition cannot do without."""
    async with Redis.from_url(url, protocol=2) as client:
        command = await _hset_of(client)
        listed = cast("list[bytes]", await _sent(client, ("FT._LIST",)))
        (index,) = [name for name in listed if b"{%b}:$memory" % TWIN.encode() in name]

        async def call(_: int) -> object:
            hset = command(next(_numbers))
            query = ("*=>[KNN 10 @vector $v AS d]", "SORTBY", "d", "RETURN", 1, "d", "LIMIT", 0, 10)
            await _sent(client, ("FT.SEARCH", index, *query, "PARAMS", 2, "v", hset[-1], "DIALECT", 2))
            return await _sent(client, hset)

        yield call


async def _hset_of(client: Redis) -> Callable[[int], Command]:
    """Return a function for the HSET of a memory with a new key, text and vector, like an existing one."""
    embedder, keyspace = TableEmbedder(), KeySpace("sm", client="bench")
    home = keyspace.records("memory", TWIN)
    (sample,) = [key async for key in client.scan_iter(f"{home}*", count=10)][:1]
    flat = await _sent(client, ("HGETALL", sample))
    fields = cast("dict[bytes, bytes]", flat)
    same = [part for name, value in fields.items() if name not in {b"vector", b"terms"} for part in (name, value)]
    terms = fields[b"terms"].rpartition(b" ")[0].decode()

    def command(number: int) -> Command:
        vector = to_half(embedder.vector(f"n{number}"))
        return ("HSET", f"{home}{number:016x}", *same, "terms", f"{terms} n{number}", "vector", vector)

    return command


async def bulk(_: WorkerState, url: str, size: int, rounds: int) -> Bulk:
    """Run a job: ten thousand memories at once, and as many pipelined HSET, in turn."""
    vocabulary, ours, bare = words(), [], []
    async with _hub(url, size) as hub, Redis.from_url(url, protocol=2) as client:
        memory, command = hub.store(NAMESPACE).memory, await _hset_of(client)
        for _round in range(rounds):
            items = [item_of(next(_numbers), vocabulary) for _ in range(MANY)]
            began = time.perf_counter()
            await memory.add_many(items)
            ours.append(MANY / (time.perf_counter() - began))
            commands = [command(next(_numbers)) for _ in range(MANY)]
            began = time.perf_counter()
            for first in range(0, MANY, 1_000):
                pipe = client.pipeline(transaction=False)
                for one in commands[first : first + 1_000]:
                    pipe.execute_command(*one)
                await pipe.execute()
            bare.append(MANY / (time.perf_counter() - began))
    ratio = median(mine / theirs for mine, theirs in zip(ours, bare, strict=True))
    return Bulk(size, median(ours), median(bare), ratio)


def query_of(prompt: str) -> CacheQuery:
    """Return the query for a prompt without further fields."""
    return asked_in(prompt, key="", model="", prompt_version="", tags=())


def _of_user(number: int) -> MemoryFilter:
    return _FILTERS[number % len(_FILTERS)]


_FILTERS = [MemoryFilter(user_id=f"user-{number}") for number in range(10)]


# -- goals -----------------------------------------------------------------------------------------


def verdicts(results: MemoryResults) -> list[Verdict]:
    """Return the goals of semantic memory."""
    found = []
    for size in (10_000, 100_000):
        found += [
            _within(results.find(f"recall, hybrid, filtered, {size:,}", ONE), f"recall at {size:,}: p50", 1.7),
            _within(results.find(f"add, near ones looked for, {size:,}", ONE), f"add at {size:,}: p50", 4.0),
            _rate(results.find(f"add, {size:,}", ONE), f"add at {size:,}", 0.5),
            _bulk(results, size),
        ]
    found.append(_within(results.find("cache check, a miss, 10,000", ONE), "cache check: p50", 1.4))
    found.append(_within(results.find("recall, exact index, 10,000", ONE), "exact index at 10,000: p50", 5.0))
    for one in results.measured:
        goal = f"{one.what}: {'at least' if one.at_least else 'at most'} {one.goal:,g} {one.unit}"
        found.append(Verdict(goal, f"{one.value:,.4g} {one.unit}", one.is_met))
    return found


def _within(rows: Sequence[Row], what: str, most: float) -> Verdict:
    shown = ", ".join(factor(row.ratios.p50_us) for row in rows)
    return Verdict(
        f"{what} at most {most:g} times the bare one", shown, _judged(rows, lambda row: row.ratios.p50_us <= most)
    )


def _rate(rows: Sequence[Row], what: str, least: float) -> Verdict:
    shown = ", ".join(factor(row.ratios.calls_per_s) for row in rows)
    met = _judged(rows, lambda row: row.ratios.calls_per_s >= least)
    return Verdict(f"{what}: at least {least:g} of the bare rate", shown, met)


def _judged(rows: Sequence[Row], holds: Callable[[Row], bool]) -> bool | None:
    return all(map(holds, rows)) if rows else None


def _bulk(results: MemoryResults, size: int) -> Verdict:
    bulks = [one for one in results.bulks if one.size == size]
    goal = f"{MANY:,} at once at {size:,}: at least 0.8 of the bare rate"
    return Verdict(
        goal, ", ".join(factor(one.ratio) for one in bulks), all(one.ratio >= 0.8 for one in bulks) if bulks else None
    )


if __name__ == "__main__":
    sys.exit(main())
