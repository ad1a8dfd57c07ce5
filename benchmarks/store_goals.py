"""The goals of the store, and the measured values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench_report import Results, Verdict, at_least, at_most, factor
from harness import Load
from namespace_costs import Clearing, KeyMemory

ONE, FIFTY, FOUR = Load("1 task"), Load("50 tasks", tasks=50), Load("4 processes", processes=4)
ALONE = Load("1 task, one core", one_core=True)
SYNC, SYNC_ALONE = Load("blocking", blocking=True), Load("blocking, one core", blocking=True, one_core=True)
_MILLION = 1_000_000


@dataclass
class StoreResults(Results):
    """All measurements of a run of the store."""

    memory: KeyMemory | None = None
    clearing: Clearing | None = None

    def extra(self) -> dict[str, Any]:
        """Return further data for the JSON file."""
        return {
            "memory": self.memory and self.memory._asdict() | {"ratio": self.memory.ratio},
            "clear": self.clearing and self.clearing._asdict(),
        }


def verdicts(results: StoreResults) -> list[Verdict]:
    """Return the goals of the store; every measured transport must reach a speed."""
    return [
        _speed(results, "read", ONE, 1.5),
        _speed(results, "read", ALONE, 1.5),
        _speed(results, "write", ONE, 1.0),
        _speed(results, "write", ALONE, 1.0),
        _speed(results, "read", FIFTY, 10),
        _speed(results, "write", FIFTY, 7),
        _speed(results, "near_read", FIFTY, 30),
        *[_speed(results, call, FIFTY, 4) for call in ("append", "hset", "incr", "sadd")],
        _speed(results, "read_many", ONE, 1.2),
        at_most(results.find("watch", ONE), "watch of a lone change, 1 task: p50 at most 1.2 times that of XREAD", 1.2),
        _client_cpu(results, most_us=8),
        _memory(results, most=1.25),
        _clear(results, most_ms=25),
        _speed(results, "sync read", SYNC, 1.0),
        _speed(results, "sync read", SYNC_ALONE, 1.0),
    ]


def _speed(results: StoreResults, contest: str, load: Load, least: float) -> Verdict:
    goal = f"{contest}, {load.name}: at least {least:g} times the calls a second"
    return at_least(results.find(contest, load), goal, least)


def _client_cpu(results: StoreResults, most_us: float) -> Verdict:
    rows = results.find("read", FIFTY)
    goal = f"read, 50 tasks: client CPU at most {most_us:g} µs a call"
    found = ", ".join(
        f"{row.ours.client_us:.1f} µs, {factor(row.ratios.client_us)} redis-py's ({row.transport})" for row in rows
    )
    return Verdict(goal, found, all(row.ours.client_us <= most_us for row in rows) if rows else None)


def _memory(results: StoreResults, most: float) -> Verdict:
    goal = f"memory of a key with a 1 KB value: at most {most:g} times a bare SET's"
    if results.memory is None:
        return Verdict(goal, "", None)
    return Verdict(goal, f"{factor(results.memory.ratio)}, service keys included", results.memory.ratio <= most)


def _clear(results: StoreResults, most_ms: float) -> Verdict:
    goal = f"clear of a million keys: p99 of others' GETs under {most_ms:g} ms"
    clearing = results.clearing
    if clearing is None:
        return Verdict(goal, "", None)
    times = clearing.p99_ms / clearing.p99_quiet_ms
    found = f"{clearing.p99_ms:.1f} ms, {factor(times)} that of a quiet server ({clearing.keys:,} keys)"
    return Verdict(goal, found, clearing.p99_ms < most_ms if clearing.keys >= _MILLION else None)
