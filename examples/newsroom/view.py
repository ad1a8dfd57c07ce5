"""The view of the newsroom: the change feed as a board, and the board as tables or lines."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from desk import LINGERING_PAGES, Claim
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sharedmem import Change

_FEED_LINES = 9
_CHAT_LINES = 7


@dataclass
class AgentRow:
    """One agent, as far as the feed shows it."""

    name: str
    pid: int = 0
    doing: str = ""
    documents: int = 0
    changes: int = 0
    killed: bool = False


@dataclass
class Board:
    """The state so far; only its methods change it, and none of them waits."""

    documents: Sequence[str]
    agents: dict[str, AgentRow] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    operations: Counter[str] = field(default_factory=Counter)
    takeovers: list[tuple[str, str, str]] = field(default_factory=list)
    """Document, its former reader, its new reader."""
    feed: deque[str] = field(default_factory=lambda: deque(maxlen=_FEED_LINES))
    chat: deque[str] = field(default_factory=lambda: deque(maxlen=_CHAT_LINES))

    @property
    def done(self) -> int:
        """How many documents are done."""
        return sum(claim.state == "done" for claim in self.claims.values())

    def hired(self, name: str, pid: int) -> None:
        """Record that an agent's process was started."""
        self.agents[name] = AgentRow(name, pid, doing="waits for its turn")

    def killed(self, name: str, document: str) -> str:
        """Record that an agent's process was killed; return the line for it."""
        row = self.agents[name]
        row.killed, row.doing = True, f"KILLED while reading {document}"
        return self._recorded(f"*** {name} (pid {row.pid}) was killed with SIGKILL in the middle of {document} ***")

    def changed(self, change: Change) -> None:
        """Count a change and put it on the feed."""
        self.operations[change.operation] += 1
        if change.actor in self.agents:
            self.agents[change.actor].changes += 1
        self.feed.append(f"{change.at:%H:%M:%S.%f}"[:-3] + f"  {change.operation:<8} {change.actor:<13} {change.key}")

    def claimed(self, document: str, claim: Claim) -> list[str]:
        """Record the current state of a claim; return lines for the view."""
        before = self.claims.get(document)
        self.claims[document] = claim
        row = self.agents.setdefault(claim.by, AgentRow(claim.by))
        if claim.state == "done":
            return [] if before and before.state == "done" else [self._finished(row, document)]
        if not row.killed:
            row.doing = _progress(document, claim)
        if before and before.by != claim.by:
            self.takeovers.append((document, before.by, claim.by))
            return [self._recorded(f"{claim.by} takes over {document}: the lease of {before.by} ran out")]
        return [] if before else [f"{claim.by} takes {document}"]

    def chat_line(self, who: str, text: str) -> str:
        """Record a line of the group chat; return it for the plain view."""
        self.chat.append(f"{who}: {text}")
        row = self.agents.get(who)
        if row and not row.killed:
            row.doing = text
        return f"{who} says: {text}"

    def _finished(self, row: AgentRow, document: str) -> str:
        row.documents += 1
        row.doing = f"done with {document}"
        return f"{row.name} has done {document} ({self.done} of {len(self.documents)})"

    def _recorded(self, line: str) -> str:
        self.chat.append(line)
        return line


class PlainView:
    """Lines for a pipe or a log: important events, as they happen."""

    def show(self, lines: Sequence[str]) -> None:
        """Print new lines."""
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class LiveView:
    """Tables for a terminal, redrawn some times a second."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def __rich__(self) -> Group:
        return Group(_agent_table(self._board), _progress_line(self._board), _panels(self._board))

    def show(self, lines: Sequence[str]) -> None:
        """Do nothing: the next redraw shows the lines."""


@contextmanager
def opened_view(board: Board, *, plain: bool) -> Iterator[PlainView | LiveView]:
    """Open the right view: tables on a terminal, lines elsewhere or on request."""
    if plain or not sys.stdout.isatty():
        yield PlainView()
        return
    view = LiveView(board)
    with Live(view, console=Console(), refresh_per_second=8):
        yield view


def _progress(document: str, claim: Claim) -> str:
    pages = "it is a long one" if claim.pages == LINGERING_PAGES else f"of {claim.pages}"
    return f"reads {document}, page {claim.page} {pages}"


def _agent_table(board: Board) -> Table:
    table = Table(title="The newsroom", expand=True)
    for heading in ("agent", "pid", "is busy with"):
        table.add_column(heading, no_wrap=True, ratio=4 if heading == "is busy with" else None)
    for heading in ("documents", "changes"):
        table.add_column(heading, justify="right")
    for row in board.agents.values():
        style = "bold red" if row.killed else ""
        table.add_row(row.name, str(row.pid), row.doing, str(row.documents), str(row.changes), style=style)
    return table


def _progress_line(board: Board) -> Table:
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    changes = sum(board.operations.values())
    line.add_row(
        Text(f"{board.done} of {len(board.documents)} documents, {changes} changes"),
        ProgressBar(total=len(board.documents), completed=board.done),
    )
    return line


def _panels(board: Board) -> Group:
    feed = Text("\n".join(board.feed), no_wrap=True, overflow="ellipsis")
    chat = Text("\n".join(board.chat), no_wrap=True, overflow="ellipsis")
    return Group(
        Panel(feed, title="change feed", height=_FEED_LINES + 2),
        Panel(chat, title="group chat", height=_CHAT_LINES + 2),
    )
