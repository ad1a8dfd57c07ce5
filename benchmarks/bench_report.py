"""Report measurements: a table on the terminal, JSON for programs, ratios for a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import Figures, Load
from rich.console import Console
from rich.table import Table

_WIDTH = 150


@dataclass(frozen=True)
class Row:
    """One call under one load over one transport."""

    contest: str
    command: str
    load: str
    transport: str
    rival: str
    """The side it is compared with."""
    ours: Figures
    theirs: Figures
    ratios: Figures


@dataclass
class Results:
    """All measurements of a run."""

    machine: dict[str, str]
    quick: bool
    rows: list[Row] = field(default_factory=list)

    def find(self, contest: str, load: Load) -> list[Row]:
        """Return the rows of a call under a load."""
        return [row for row in self.rows if (row.contest, row.load) == (contest, load.name)]

    def extra(self) -> dict[str, Any]:
        """Return further data for the JSON file."""
        return {}

    def page_extra(self) -> Iterable[str]:
        """Return further lines of the page."""
        return ()


@dataclass(frozen=True)
class Verdict:
    """A goal, and the measured value."""

    goal: str
    found: str
    met: bool | None
    """None if this run has not measured it."""

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return "not measured" if self.met is None else "met" if self.met else "missed"


def at_least(rows: Sequence[Row], goal: str, least: float) -> Verdict:
    """Return the verdict on a speed, which every row must reach."""
    found = ", ".join(f"{factor(row.ratios.calls_per_s)} ({row.transport})" for row in rows)
    return Verdict(goal, found, all(row.ratios.calls_per_s >= least for row in rows) if rows else None)


def at_most(rows: Sequence[Row], goal: str, most: float) -> Verdict:
    """Return the verdict on a p50, which no row may exceed."""
    found = ", ".join(f"{factor(row.ratios.p50_us)} ({row.transport})" for row in rows)
    return Verdict(goal, found, all(row.ratios.p50_us <= most for row in rows) if rows else None)


# -- terminal and JSON -----------------------------------------------------------------------------


def show(results: Results, goals: Sequence[Verdict], *, title: str) -> None:
    """Print the tables."""
    console = Console()
    console.width = max(console.width, _WIDTH)
    table = Table(title=f"{title}: µs; medians of interleaved rounds")
    for name in ("call", "against", "load", "over"):
        table.add_column(name)
    for name in ("speed", "calls/s", "p50", "p99", "client CPU", "server CPU"):
        table.add_column(name, justify="right")
    for row in results.rows:
        table.add_row(row.contest, row.command, row.load, row.transport, *_cells(row))
    console.print(table)
    verdicts = Table(title="goals")
    for name in ("goal", "found", "verdict"):
        verdicts.add_column(name)
    for verdict in goals:
        verdicts.add_row(verdict.goal, verdict.found, verdict.word)
    console.print(verdicts)


def _cells(row: Row) -> Iterable[str]:
    pairs = list(zip(row.ours, row.theirs, strict=True))
    yield f"[bold]{factor(row.ratios.calls_per_s)}[/]"
    yield "{:,.0f} / {:,.0f}".format(*pairs[0])
    yield from ("{:.0f} / {:.0f}".format(*pair) for pair in pairs[1:3])
    yield from ("{:.1f} / {:.1f}".format(*pair) for pair in pairs[3:])


def save(results: Results, goals: Sequence[Verdict], path: Path) -> None:
    """Write everything as JSON."""
    plain = {
        "machine": results.machine,
        "quick": results.quick,
        "rows": [
            asdict(row) | {name: getattr(row, name)._asdict() for name in ("ours", "theirs", "ratios")}
            for row in results.rows
        ],
        **results.extra(),
        "goals": [asdict(verdict) | {"verdict": verdict.word} for verdict in goals],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


# -- for a page ------------------------------------------------------------------------------------


def put_on_page(results: Results, goals: Sequence[Verdict], page: Path, *, part: str) -> None:
    """Replace a part of a page by the ratios of this run; see `replace_part`."""
    replace_part(page, part, _page_lines(results, goals))


def replace_part(page: Path, part: str, lines: Iterable[str]) -> None:
    """Replace the text between the markers `<!-- <part>: begin -->` and `end` of a page.

    Raises:
        ValueError: the page has no such markers.
    """
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    text = page.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        raise ValueError(f"{page} has no lines {begin} and {end} to write between")
    inside = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    body = "\n".join([begin, "", *lines, "", end])
    page.write_text(inside.sub(lambda _: body, text), encoding="utf-8")


def _page_lines(results: Results, goals: Sequence[Verdict]) -> Iterable[str]:
    about = results.machine
    yield (
        f"Redis {about['server']}, redis-py {about['redis']} with hiredis {about['hiredis']}, "
        f"Python {about['python']}, {about['system']}, {about['cores']} cores shared by clients and server."
        + (" A quick run: few and short rounds." if results.quick else "")
    )
    yield from ("", "### Goals", "", "| goal | found | |", "|---|---|---|")
    yield from (f"| {verdict.goal} | {verdict.found} | {verdict.word} |" for verdict in goals)
    for transport in dict.fromkeys(row.transport for row in results.rows):
        yield from ("", f"### Over {_TRANSPORTS[transport]}", "")
        yield "| call | against | load | calls a second | p50 | p99 | client CPU | server CPU |"
        yield "|---|---|---|---:|---:|---:|---:|---:|"
        rows = (row for row in results.rows if row.transport == transport)
        yield from (_page_row(row) for row in rows)
    yield from results.page_extra()


_TRANSPORTS = {"unix": "the unix socket", "tcp": "TCP"}


def _page_row(row: Row) -> str:
    words = [row.contest, row.command, row.load, *(factor(ratio) for ratio in row.ratios)]
    return f"| {' | '.join(words)} |"


def factor(ratio: float) -> str:
    """Return a ratio with its significant digits."""
    return f"{ratio:.2f} x" if ratio < 1.995 else f"{ratio:.1f} x"
