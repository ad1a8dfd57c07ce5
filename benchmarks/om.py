"""Objects of bound models beside bare redis-om: the same models, saved, read and found by both.

python benchmarks/om.py                    a few minutes
python benchmarks/om.py --quick            few and short rounds
python benchmarks/om.py --page docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aredis_om import Field, HashModel, JsonModel, Migrator
from bench_report import Results, Row, Verdict, at_least, put_on_page, save, show
from harness import Call, Effort, Fleet, Load, Opener, Server, close_sides, compare, machine, open_sides
from harness import private_server as started_server
from redis.asyncio import Redis

from sharedmem import Hub, Settings, om

FULL, QUICK = Effort(rounds=5, seconds=0.5), Effort(rounds=3, seconds=0.15)
RESULTS = Path(__file__).parent / "results" / "om.json"
ONE, FIFTY = Load("1 task"), Load("50 tasks", tasks=50)
OURS, BARE = "sharedmem", "redis-om"
OBJECTS = 1000
"""Objects that there are from the start; reads and queries are of these."""
PAGE = 20
SAVE, GET, FIND, COUNT = "save", "get", "find, a page of 20", "count"


class Ticket(JsonModel, index=True):
    """A ticket as a JSON document."""

    pk: str | None = Field(default=None, primary_key=True, index=True)
    title: str = Field(index=True, full_text_search=True)
    status: str = Field(index=True)
    priority: int = Field(index=True, sortable=True)


class Part(HashModel, index=True):
    """A spare part as a hash."""

    pk: str | None = Field(default=None, primary_key=True, index=True)
    title: str = Field(index=True)
    status: str = Field(index=True)
    priority: int = Field(index=True, sortable=True)


MODELS: Mapping[str, Any] = {"JSON": Ticket, "hash": Part}


def make(model: Any, number: int) -> Any:
    """Return an object."""
    status = "open" if number % 4 else "closed"
    return model(pk=f"n{number}", title=f"Crane number {number}", status=status, priority=number % 100)


def calls(model: Any) -> dict[str, Callable[[int], Awaitable[object]]]:
    """Return what is measured of a model; both sides have the same calls."""
    found = model.find(model.status == "open", model.priority >= 90)
    return {
        SAVE: lambda number: make(model, number).save(),
        GET: lambda number: model.get(f"n{number % OBJECTS}"),
        FIND: lambda number: model.find(model.status == "open", model.priority >= 90).page(number % 5, PAGE),
        COUNT: lambda _: found.count(),
    }


@asynccontextmanager
async def open_ours(contest: str, form: str, url: str) -> AsyncIterator[Call]:
    """Open a bound model."""
    async with Hub.open(settings=Settings(redis_url=url)) as hub:
        bound = om.bind(hub.store("bench", actor="agent"), MODELS[form])
        await bound.add([make(bound, number) for number in range(OBJECTS)])
        await bound.find().count()
        yield calls(bound)[contest]


@asynccontextmanager
async def open_bare(contest: str, form: str, url: str) -> AsyncIterator[Call]:
    """Open the same model with a connection of its own."""
    model = MODELS[form]
    model.Meta.database = Redis.from_url(url, decode_responses=True)
    migrator: Any = Migrator
    await migrator(conn=model.Meta.database).run()
    for number in range(OBJECTS):
        await make(model, number).save()
    yield calls(model)[contest]
    await model.Meta.database.aclose()


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Bound models beside bare redis-om.")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a first impression")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose ratios to replace")
    asked = parser.parse_args()
    with started_server() as server, Fleet(1) as fleet:
        results = Results(machine() | {"server": server.version}, asked.quick)
        for contest in (SAVE, GET, FIND, COUNT):
            for form in MODELS:
                measure(fleet, server, QUICK if asked.quick else FULL, results, contest, form)
    goals = verdicts(results)
    show(results, goals, title="sharedmem / redis-om")
    save(results, goals, asked.json)
    if asked.page:
        put_on_page(results, goals, asked.page, part="om")
    return 0


def measure(fleet: Fleet, server: Server, effort: Effort, results: Results, contest: str, form: str) -> None:
    """Compare one call of one kind of model, alone and with 50 at once."""
    server.empty()
    url = server.urls["unix"]
    sides: dict[str, Opener] = {
        OURS: partial(open_ours, contest, form, url),
        BARE: partial(open_bare, contest, form, url),
    }
    fleet.ask(1, open_sides, sides)
    for load in (ONE, FIFTY):
        print(f"{contest}, {form}, {load.name}", file=sys.stderr, flush=True)
        compared = compare(fleet, server, [*sides], load, effort)
        figures = compared.medians(OURS), compared.medians(BARE), compared.ratios(OURS, BARE)
        results.rows.append(Row(f"{contest}, {form}", BARE, load.name, "unix", BARE, *figures))
    fleet.ask(1, close_sides)


def verdicts(results: Results) -> list[Verdict]:
    """Return the goals: rights, the change feed and safe repeats cost less than redis-om's own round trips."""
    return [
        at_least(results.find(f"{contest}, {form}", load), f"{contest}, {form}, {load.name}: as fast as redis-om", 1)
        for contest in (SAVE, GET, FIND, COUNT)
        for form in MODELS
        for load in (ONE, FIFTY)
    ]


if __name__ == "__main__":
    sys.exit(main())
