"""What a team of agents saves: model calls, duplicate memories, and how fast it finds them again.

python benchmarks/workloads.py                                   searches at 1,000 and 100,000 memories, some minutes
python benchmarks/workloads.py --quick                           few calls, 1,000 memories
python benchmarks/workloads.py --sizes 1000 100000 1000000       a million takes about an hour and 8 GB
python benchmarks/workloads.py --page docs/workloads.md

The days of the teams are made up (workload_data.py says how); the embedder is the offline one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from bench_report import replace_part
from harness import machine
from harness import private_server as started_server
from memory_data import TableEmbedder, fill, queries, settings_of, words
from rich.console import Console
from rich.table import Table
from workload_data import AGENTS, REWORDED, WORKLOADS, Workload

from sharedmem import Hub, Settings
from sharedmem.memory.memories import Memories

RESULTS = Path(__file__).parent / "results" / "workloads.json"
SEED = 7
MODEL_S = 0.02
"""Seconds that the model takes for an answer: while it does, others may ask the same."""
EXACT, DEFAULT = 1.0, None
CACHE_THRESHOLDS = (EXACT, DEFAULT, 0.95, 0.9)
DEDUP_THRESHOLDS = (0.95, 0.9, 0.85)
MOST_MS = {"by meaning": 100.0, "hybrid": 150.0}
"""95th percentiles that the source document of semantic memory promises."""


@dataclass(frozen=True)
class Savings:
    """What the cache and `once` saved of one team's model calls."""

    workload: str
    threshold: float | None
    """Cosine similarity of the cache; None: the one that was calibrated for the embedder."""
    calls: int
    repeated: float
    """Share of calls whose intent had been asked before: more cannot be saved."""
    saved: float
    exact: float
    """Share of calls with a prompt that had been asked before, or that another agent was just asking."""
    by_meaning: float
    false_hits: float
    """Share of calls that got the answer to something else."""


@dataclass(frozen=True)
class Deduplication:
    """What deduplication kept out of one team's notes."""

    workload: str
    threshold: float
    notes: int
    duplicates: float
    """Share of notes that state a fact which was noted before."""
    kept_out: float
    """Share of notes that did not become memories of their own."""
    found: float
    """Share of the duplicates that were merged."""
    false_merges: float
    """Share of notes that were merged into another fact."""


@dataclass(frozen=True)
class SearchTimes:
    """Milliseconds of searches among a number of memories, one caller."""

    size: int
    mode: str
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass
class Report:
    """All measurements of a run."""

    machine: dict[str, str]
    quick: bool
    savings: list[Savings] = field(default_factory=list)
    deduplication: list[Deduplication] = field(default_factory=list)
    searches: list[SearchTimes] = field(default_factory=list)


async def run_days(url: str, report: Report) -> None:
    """Run the days of all teams."""
    calls, facts = (400, 60) if report.quick else (4_000, 400)
    async with Hub.open(settings=Settings(redis_url=url, durable_url="none", embedder="wordllama")) as hub:
        for workload in WORKLOADS:
            for threshold in CACHE_THRESHOLDS:
                _say(f"{workload.name}: cache at {_threshold(threshold)}")
                report.savings.append(await save_calls(hub, workload, calls, threshold))
    for workload in WORKLOADS:
        for least in DEDUP_THRESHOLDS:
            _say(f"{workload.name}: deduplication at {least}")
            report.deduplication.append(await keep_notes(url, workload, facts, least))


async def save_calls(hub: Hub, workload: Workload, count: int, threshold: float | None) -> Savings:
    """Let eight agents ask the same model through one cache."""
    namespace = f"calls-{workload.name.split()[0]}-{threshold or 'default'}"
    stores = [hub.store(namespace, actor=f"agent-{number}") for number in range(AGENTS)]
    asked = 0

    async def model(prompt: str, intent: str) -> dict[str, str]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(MODEL_S)
        return {"prompt": prompt, "intent": intent}

    # With a key of its own the cache asks by the first argument alone; the intent only comes back with the answer.
    ask = [store.cache.cached(key="handbook", threshold=threshold)(model) for store in stores]
    seen: set[str] = set()
    made = repeated = false = 0
    for group in workload.rounds(count, SEED):
        answers = await asyncio.gather(*(fn(call.prompt, call.intent) for fn, call in zip(ask, group, strict=True)))
        for call, answer in zip(group, answers, strict=True):
            made += 1
            repeated += call.intent in seen
            seen.add(call.intent)
            false += answer["intent"] != call.intent
    stats = await stores[0].cache.stats()
    await stores[0].clear()
    exact, by_meaning = stats.exact_hits / made, (stats.hits - stats.exact_hits) / made
    return Savings(
        workload=workload.name,
        threshold=threshold,
        calls=made,
        repeated=repeated / made,
        saved=1 - asked / made,
        exact=exact,
        by_meaning=by_meaning,
        false_hits=false / made,
    )


async def keep_notes(url: str, workload: Workload, count: int, threshold: float) -> Deduplication:
    """Let eight agents note the same facts."""
    settings = Settings(redis_url=url, durable_url="none", embedder="wordllama", dedup_similarity=threshold)
    notes = workload.notes(count, SEED)
    fact_of: dict[str, str] = {}
    known: set[str] = set()
    duplicates = merged = right = 0
    async with Hub.open(settings=settings) as hub:
        namespace = f"notes-{workload.name.split()[0]}-{threshold}"
        for note in notes:
            added = await hub.store(namespace, actor=note.agent).memory.add(note.text, category="fact")
            is_duplicate = note.fact in known
            known.add(note.fact)
            duplicates += is_duplicate
            merged += added.merged
            right += is_duplicate and added.merged and fact_of[added.id] == note.fact
            fact_of.setdefault(added.id, note.fact)
        await hub.store(namespace).clear()
    total = len(notes)
    return Deduplication(
        workload.name,
        threshold,
        total,
        duplicates / total,
        merged / total,
        right / max(duplicates, 1),
        (merged - right) / total,
    )


async def search_times(url: str, size: int, count: int) -> list[SearchTimes]:
    """Time searches by meaning, and hybrid ones, in turn."""
    namespace, asked = f"search-{size}", queries(words())
    await fill(url, namespace, size)
    async with Hub.open(settings=settings_of(url, size), embedder=TableEmbedder()) as hub:
        memory = hub.store(namespace).memory
        searches = _searches(memory)
        taken: dict[str, list[float]] = {mode: [] for mode in searches}
        for number in range(count + 20):
            for mode, search in searches.items():
                began = time.perf_counter()
                await search(asked[number % len(asked)])
                if number >= 20:
                    taken[mode].append((time.perf_counter() - began) * 1000)
        await hub.store(namespace).clear()
    return [_times(size, mode, times) for mode, times in taken.items()]


def _searches(memory: Memories) -> dict[str, Callable[[str], Awaitable[object]]]:
    return {"by meaning": memory.search_semantic, "hybrid": memory.search}


def _times(size: int, mode: str, taken: Sequence[float]) -> SearchTimes:
    cuts = quantiles(taken, n=100)
    return SearchTimes(size, mode, round(cuts[49], 2), round(cuts[94], 2), round(cuts[98], 2))


# -- for people ------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A table: each row has as many cells as there are headings."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


_CALLS = ("team", "cache", "asked before", "**calls saved**", "same prompt", "by meaning", "wrong answer")
_NOTES = ("team", "from", "duplicates", "**kept out**", "of the duplicates", "merged wrongly")
_SEARCHES = ("memories", "search", "p50", "**p95**", "p99", "promised p95", "")


def _parts(report: Report) -> Iterator[Part]:
    yield Part("Model calls", _CALLS, [_call_row(one) for one in report.savings])
    yield Part("Notes", _NOTES, [_note_row(one) for one in report.deduplication])
    yield Part("Searches, one caller, milliseconds", _SEARCHES, [_search_row(one) for one in report.searches])


def _call_row(one: Savings) -> Sequence[str]:
    shares = (one.repeated, one.saved, one.exact, one.by_meaning, one.false_hits)
    return (one.workload, _threshold(one.threshold), *map(_share, shares))


def _note_row(one: Deduplication) -> Sequence[str]:
    shares = (one.duplicates, one.kept_out, one.found, one.false_merges)
    return (one.workload, f"{one.threshold:g}", *map(_share, shares))


def _search_row(one: SearchTimes) -> Sequence[str]:
    verdict = "met" if one.p95_ms <= MOST_MS[one.mode] else "missed"
    times = (f"{value:.1f}" for value in (one.p50_ms, one.p95_ms, one.p99_ms))
    return (f"{one.size:,}", one.mode, *times, f"{MOST_MS[one.mode]:g}", verdict)


def _threshold(value: float | None) -> str:
    return "calibrated" if value is None else "same prompt" if value == EXACT else f"{value:g}"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _show(report: Report) -> None:
    console = Console()
    for title, headings, rows in _parts(report):
        table = Table(title=title)
        for heading in headings:
            table.add_column(heading.strip("*"))
        for row in rows:
            table.add_row(*row)
        console.print(table)


def _page_lines(report: Report) -> Iterator[str]:
    about = report.machine
    yield (
        f"Python {about['python']}, {about['system']}, {about['cores']} cores shared by agents and server; "
        f"{AGENTS} agents, {REWORDED:.0%} of calls and notes reworded." + (" A quick run." if report.quick else "")
    )
    for title, headings, rows in _parts(report):
        line = "|---|---" + "|---:" * (len(headings) - 2) + "|"
        yield from ("", f"### {title}", "", f"| {' | '.join(headings)} |", line)
        yield from (f"| {' | '.join(row)} |" for row in rows)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def main() -> int:
    """Measure, show and store."""
    parser = argparse.ArgumentParser(description="What a team of agents saves.")
    parser.add_argument("--quick", action="store_true", help="few calls, few memories: a first impression")
    parser.add_argument("--sizes", type=int, nargs="*", metavar="N", help="memories to search among (1,000 100,000)")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where the figures go")
    parser.add_argument("--page", type=Path, metavar="PATH", help="a page whose figures to replace")
    given = parser.parse_args()
    sizes = given.sizes if given.sizes is not None else [1_000] if given.quick else [1_000, 100_000]
    report = Report(machine(), given.quick)
    with started_server() as server:
        asyncio.run(run_days(server.urls["unix"], report))
    for size in sizes:
        _say(f"searches among {size:,}")
        # A server has one embedder for all its namespaces; here texts must cost nothing.
        with started_server() as server:
            report.searches += asyncio.run(search_times(server.urls["unix"], size, 100 if given.quick else 500))
    _show(report)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
    if given.page:
        replace_part(given.page, "workloads", _page_lines(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
