"""What the measurements say: goals met or missed, a table for people, JSON for programs, ratios for the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bulk import Clearing, Memory
from harness import Figures, Load
from rich.console import Console
from rich.table import Table

BEGIN, END = "<!-- ratios: begin -->", "<!-- ratios: end -->"
ONE, FIFTY, FOUR = Load("1 task"), Load("50 tasks", tasks=50), Load("4 processes", processes=4)
ALONE = Load("1 task, one core", one_core=True)
SYNC, SYNC_ALONE = Load("blocking", blocking=True), Load("blocking, one core", blocking=True, one_core=True)
_WIDTH = 150
_MILLION = 1_000_000


@dataclass(frozen=True)
class Row:
    """One call under one load over one transport."""

    contest: str
    command: str
    load: str
    transport: str
    bare_side: str
    """Which of redis-py's pools was the faster one, and is compared with."""
    ours: Figures
    bare: Figures
    ratios: Figures


@dataclass
class Results:
    """Everything that a run has measured."""

    machine: dict[str, str]
    quick: bool
    rows: list[Row] = field(default_factory=list)
    memory: Memory | None = None
    clearing: Clearing | None = None

    def find(self, contest: str, load: Load) -> list[Row]:
        """The rows of a call under a load, one a transport."""
        return [row for row in self.rows if (row.contest, row.load) == (contest, load.name)]


@dataclass(frozen=True)
class Verdict:
    """A goal, and what was measured."""

    goal: str
    found: str
    met: bool | None
    """None when this run has not measured it."""

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return "not measured" if self.met is None else "met" if self.met else "missed"


# -- goals -----------------------------------------------------------------------------------------


def verdicts(results: Results) -> list[Verdict]:
    """The goals of the store; a speed has to be reached over every transport that was measured."""
    return [
        _speed(results, "read", ONE, 1.5),
        _speed(results, "read", ALONE, 1.5),
        _speed(results, "write", ONE, 1.0),
        _speed(results, "write", ALONE, 1.0),
        _speed(results, "read", FIFTY, 10),
        _speed(results, "write", FIFTY, 6),
        _client_cpu(results, most_us=8),
        _memory(results, most=1.25),
        _clear(results, most_ms=25),
        _speed(results, "sync read", SYNC, 0.15),
        _speed(results, "sync read", SYNC_ALONE, 0.15),
    ]


def _speed(results: Results, contest: str, load: Load, least: float) -> Verdict:
    rows = results.find(contest, load)
    goal = f"{contest}, {load.name}: at least {least:g} times the calls a second"
    found = ", ".join(f"{_factor(row.ratios.calls_per_s)} ({row.transport})" for row in rows)
    return Verdict(goal, found, all(row.ratios.calls_per_s >= least for row in rows) if rows else None)


def _client_cpu(results: Results, most_us: float) -> Verdict:
    rows = results.find("read", FIFTY)
    goal = f"read, 50 tasks: client CPU at most {most_us:g} µs a call"
    found = ", ".join(
        f"{row.ours.client_us:.1f} µs, {_factor(row.ratios.client_us)} redis-py's ({row.transport})" for row in rows
    )
    return Verdict(goal, found, all(row.ours.client_us <= most_us for row in rows) if rows else None)


def _memory(results: Results, most: float) -> Verdict:
    goal = f"memory of a key with a 1 KB value: at most {most:g} times a bare SET's"
    if results.memory is None:
        return Verdict(goal, "", None)
    return Verdict(goal, f"{_factor(results.memory.ratio)}, service keys included", results.memory.ratio <= most)


def _clear(results: Results, most_ms: float) -> Verdict:
    goal = f"clear of a million keys: p99 of others' GETs under {most_ms:g} ms"
    clearing = results.clearing
    if clearing is None:
        return Verdict(goal, "", None)
    factor = clearing.p99_ms / clearing.p99_quiet_ms
    found = f"{clearing.p99_ms:.1f} ms, {_factor(factor)} that of a quiet server ({clearing.keys:,} keys)"
    return Verdict(goal, found, clearing.p99_ms < most_ms if clearing.keys >= _MILLION else None)


# -- for people and programs -----------------------------------------------------------------------


def show(results: Results) -> None:
    """Print the tables."""
    console = Console()
    console.width = max(console.width, _WIDTH)
    table = Table(title="sharedmem / bare redis-py: µs; medians of interleaved rounds")
    for name in ("call", "against", "load", "over"):
        table.add_column(name)
    for name in ("speed", "calls/s", "p50", "p99", "client CPU", "server CPU"):
        table.add_column(name, justify="right")
    for row in results.rows:
        table.add_row(row.contest, row.command, row.load, row.transport, *_cells(row))
    console.print(table)
    goals = Table(title="goals")
    for name in ("goal", "found", "verdict"):
        goals.add_column(name)
    for verdict in verdicts(results):
        goals.add_row(verdict.goal, verdict.found, verdict.word)
    console.print(goals)


def _cells(row: Row) -> Iterable[str]:
    pairs = list(zip(row.ours, row.bare, strict=True))
    yield f"[bold]{_factor(row.ratios.calls_per_s)}[/]"
    yield "{:,.0f} / {:,.0f}".format(*pairs[0])
    yield from ("{:.0f} / {:.0f}".format(*pair) for pair in pairs[1:3])
    yield from ("{:.1f} / {:.1f}".format(*pair) for pair in pairs[3:])


def save(results: Results, path: Path) -> None:
    """Write everything as JSON."""
    plain = {
        "machine": results.machine,
        "quick": results.quick,
        "rows": [
            asdict(row) | {name: getattr(row, name)._asdict() for name in ("ours", "bare", "ratios")}
            for row in results.rows
        ],
        "memory": results.memory and results.memory._asdict() | {"ratio": results.memory.ratio},
        "clear": results.clearing and results.clearing._asdict(),
        "goals": [asdict(verdict) | {"verdict": verdict.word} for verdict in verdicts(results)],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


# -- for the page ----------------------------------------------------------------------------------


def put_on_page(results: Results, page: Path) -> None:
    """Replace what stands between the markers of a page by the ratios of this run.

    Raises:
        ValueError: the page has no markers.
    """
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{page} has no lines {BEGIN} and {END} to write between")
    inside = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    body = "\n".join([BEGIN, "", *_page_lines(results), "", END])
    page.write_text(inside.sub(lambda _: body, text), encoding="utf-8")


def _page_lines(results: Results) -> Iterable[str]:
    about = results.machine
    yield (
        f"Redis {about['server']}, redis-py {about['redis']} with hiredis {about['hiredis']}, "
        f"Python {about['python']}, {about['system']}, {about['cores']} cores shared by clients and server."
        + (" A quick run: few and short rounds." if results.quick else "")
    )
    yield from ("", "### Goals", "", "| goal | found | |", "|---|---|---|")
    yield from (f"| {verdict.goal} | {verdict.found} | {verdict.word} |" for verdict in verdicts(results))
    for transport in dict.fromkeys(row.transport for row in results.rows):
        yield from ("", f"### Over {_TRANSPORTS[transport]}", "")
        yield "| call | against | load | calls a second | p50 | p99 | client CPU | server CPU |"
        yield "|---|---|---|---:|---:|---:|---:|---:|"
        rows = (row for row in results.rows if row.transport == transport)
        yield from (_page_row(row) for row in rows)


_TRANSPORTS = {"unix": "the unix socket", "tcp": "TCP"}


def _page_row(row: Row) -> str:
    words = [row.contest, row.command, row.load, *(_factor(ratio) for ratio in row.ratios)]
    return f"| {' | '.join(words)} |"


def _factor(ratio: float) -> str:
    """A ratio with as many digits as it is worth."""
    return f"{ratio:.2f} x" if ratio < 1.995 else f"{ratio:.1f} x"
