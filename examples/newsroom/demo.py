"""The newsroom: agents in processes of their own share one memory, one is killed, and nothing is lost.

    python demo.py            # or: sharedmem demo

The editor (this process) publishes the documents, starts three researchers, a writer and a reviewer,
watches the change feed, kills one researcher in the middle of a document, and prints a summary.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

# `sharedmem demo` loads this file by its path, so its folder must be added to the import path.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from desk import (
    CHAT,
    COMPLETIONS,
    END,
    LINGERING_PAGES,
    NAMESPACE,
    PRESENT,
    REFUSED,
    REVIEW,
    START,
    STATEMENTS,
    TASK,
    Claim,
    Review,
    Task,
    claims_of,
    say,
    written_at,
)
from grading import Grade, grade, planted_in
from pydantic import BaseModel, ConfigDict, Field
from summary import AgentPart, Speed, Summary, as_text
from view import Board, LiveView, PlainView, opened_view

from sharedmem import Change, Hub, Settings, SharedMemoryError, SharedMemoryStore, UnavailableError

FOLDER = Path(__file__).resolve().parent
_CLAIM_PREFIX = "newsroom:claims:"
# The first changes in the feed come from clearing the namespace before the start.
_NO_WORK = frozenset({"gap", "clear"})
_LINGER_AT = 2
_SHOWN_PAGES = 2
_PROBES = 2_000
_PROBE_TASKS = 50
_PROBE_TTL_S = 60


class Options(BaseModel):
    """Options of the demo; with the defaults it takes about twenty seconds."""

    model_config = ConfigDict(frozen=True)

    researchers: int = Field(3, ge=2, description="Researcher processes; the second of them is killed.")
    think_s: float = Field(1.0, gt=0, description="Seconds that a researcher pretends to think over a document.")
    lease_s: float = Field(2.0, gt=0, description="Seconds until an unrenewed claim falls to others.")
    patience_s: float = Field(180.0, gt=0, description="Seconds after which the demo gives up.")
    plain: bool = Field(default=False, description="Lines instead of tables, also on a terminal.")
    report: Path | None = Field(None, description="File for the report; without it, newsroom-report.md in the data.")
    redis_url: str | None = Field(None, description="Server to use; by default the one of the settings.")
    data_dir: Path | None = Field(None, description="Data folder of the embedded server.")


class AgentFailedError(SharedMemoryError):
    """An agent's process ended with an error of its own."""

    def __init__(self, name: str, code: int, output: str) -> None:
        super().__init__(f"agent {name} ended with exit code {code}; its last words:\n{output[-2000:]}")


@dataclass
class Newsroom:
    """The running processes and their state."""

    store: SharedMemoryStore
    board: Board
    view: PlainView | LiveView
    environment: Mapping[str, str]
    victim: str
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    chat_read: int = 0
    visited: bool = False

    async def hire(self, role: str, name: str, *extra: str) -> None:
        """Start the process of an agent."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(FOLDER / "roles.py"),
            role,
            name,
            *extra,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip - program, arguments and pipes each on their line
        self.processes[name] = process
        self.board.hired(name, process.pid)

    async def finished(self, name: str) -> None:
        """Wait until an agent's process has ended.

        Raises:
            AgentFailedError: it failed, and was not killed on purpose.
        """
        process = self.processes[name]
        output, _ = await process.communicate()
        if process.returncode and name not in self.killed:
            raise AgentFailedError(name, process.returncode, output.decode(errors="replace"))

    async def all_ended(self, *, staying: str = "") -> None:
        """Wait for all agents, the killed one included, but not for the one that stays."""
        await asyncio.gather(*(self.finished(name) for name in self.processes if name != staying))

    async def end_all(self) -> None:
        """End all running processes, after an error."""
        for process in self.processes.values():
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
            await process.wait()

    async def watch(self) -> None:
        """Follow the change feed from its beginning to the editor's last message."""
        async for change in self.store.watch("*", since=0):
            if change.operation not in _NO_WORK:
                self.board.changed(change)
            self.view.show(await self._lines_for(change))
            if change.key == END:
                return

    async def _lines_for(self, change: Change) -> list[str]:
        if change.key.startswith(_CLAIM_PREFIX):
            before = len(self.board.takeovers)
            lines = await self._claim_lines(change.key)
            for document, former, reader in self.board.takeovers[before:] if self.visited else ():
                await say(self.store, "editor", f"{former} fell silent. {reader} has taken over {document}.")
            return lines
        if change.key == CHAT:
            return await self._chat_lines()
        return []

    async def _claim_lines(self, key: str) -> list[str]:
        value = await self.store.read(key)
        if value is None:
            return []
        document, claim = key.removeprefix(_CLAIM_PREFIX), Claim.model_validate(value)
        lines = self.board.claimed(document, claim)
        if claim.by == self.victim and claim.pages == LINGERING_PAGES and claim.page >= _SHOWN_PAGES:
            lines += self._kill(document)
        return lines

    def _kill(self, document: str) -> list[str]:
        """Kill the victim with SIGKILL, once; nothing in it can react to that."""
        process = self.processes[self.victim]
        if self.victim in self.killed or process.returncode is not None:
            return []
        self.killed.add(self.victim)
        process.kill()
        return [self.board.killed(self.victim, document)]

    async def _chat_lines(self) -> list[str]:
        news = await self.store.read_list(CHAT, self.chat_read)
        self.chat_read += len(news)
        return [self.board.chat_line(line["by"], line["says"]) for line in news]


async def run(options: Options | None = None, *, visit: asyncio.Event | None = None) -> Summary:
    """Run the demo from an empty namespace to its summary, which is also printed.

    Args:
        options: of the demo.
        visit: somebody looks on, until this is set: the agents also say that they are there and remember what they
            read, and the reviewer stays and answers a question from memory.

    Raises:
        SharedMemoryError: no server is available, or an agent failed.
        UnavailableError: the demo took longer than `patience_s`.
    """
    chosen = options or Options()
    try:
        async with asyncio.timeout(chosen.patience_s) as patience:
            return await _run(chosen, patience, visit)
    except TimeoutError as error:
        raise UnavailableError("the newsroom", f"it was not done within {chosen.patience_s:g} s") from error


async def _run(chosen: Options, patience: asyncio.Timeout, visit: asyncio.Event | None) -> Summary:
    settings = await asyncio.to_thread(Settings.load, redis_url=chosen.redis_url, data_dir=chosen.data_dir)
    documents = await asyncio.to_thread(_documents)
    task = Task(
        folder=str(FOLDER / "documents"),
        documents=documents,
        report=str(chosen.report or settings.data_dir / "newsroom-report.md"),
        think_s=chosen.think_s,
        lease_s=chosen.lease_s,
        visited=visit is not None,
    )
    async with Hub.open(settings=settings) as hub:
        await hub.store(NAMESPACE).clear()
        store = hub.store(NAMESPACE, actor="editor")
        started = time.monotonic()
        async with _worked(store, task, chosen) as board:
            seconds = time.monotonic() - started
            summary = await _summed_up(store, task, board, seconds=seconds, server=hub.url, data=str(settings.data_dir))
            sys.stdout.write(as_text(summary) + "\n")
            sys.stdout.flush()
            if visit is not None:
                patience.reschedule(None)
                await visit.wait()
            return summary


@asynccontextmanager
async def _worked(store: SharedMemoryStore, task: Task, options: Options) -> AsyncIterator[Board]:
    """Run all processes, watch them until the work is done, and end the one that stays behind the block."""
    board = Board(list(task.documents))
    plain = PlainView()
    room = Newsroom(store, board, plain, _environment(options), victim="researcher-2", visited=task.visited)
    try:
        with opened_view(board, plain=options.plain) as room.view:
            await store.write(TASK, task.model_dump(mode="json"))
            started = _start_when_all_are_there(store, options.researchers)
            tasks = [asyncio.create_task(part) for part in (room.watch(), started, _staff(room, options.researchers))]
            try:
                await asyncio.gather(*tasks)
            finally:
                for running in tasks:
                    running.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        yield board
    finally:
        await room.end_all()


async def _staff(room: Newsroom, researchers: int) -> None:
    """Start all agents and wait for the last to end."""
    for number in range(1, researchers + 1):
        name = f"researcher-{number}"
        await room.hire("researcher", name, *(("--linger-at", str(_LINGER_AT)) if name == room.victim else ()))
    await room.hire("writer", "writer")
    await room.hire("reviewer", "reviewer")
    if room.visited:
        await asyncio.gather(room.all_ended(staying="reviewer"), written_at(room.store, REVIEW))
    else:
        await room.all_ended()
    await room.store.write(END, "The editor ends the demo.")


async def _start_when_all_are_there(store: SharedMemoryStore, researchers: int) -> None:
    async for _ in store.watch(PRESENT, since=0):
        if await store.scard(PRESENT) >= researchers:
            await store.write(START, "go")
            return


async def _summed_up(
    store: SharedMemoryStore, task: Task, board: Board, *, seconds: float, server: str, data: str
) -> Summary:
    """Make the summary from the data in the store, not from the view."""
    claims = await claims_of(store, list(task.documents))
    completions = await store.hgetall(COMPLETIONS)
    refused = await store.hgetall(REFUSED)
    return Summary(
        documents=len(claims),
        lost=tuple(name for name, claim in claims.items() if claim is None or claim.state != "done"),
        twice=tuple(name for name, times in completions.items() if int(times) > 1),
        takeovers=tuple(board.takeovers),
        agents=tuple(
            AgentPart(
                name=row.name,
                documents=sum(claim is not None and claim.by == row.name for claim in claims.values()),
                changes=row.changes,
                refused_claims=int(refused.get(row.name, 0)),
                killed=row.killed,
            )
            for row in board.agents.values()
        ),
        statements=int(await store.read(STATEMENTS, 0)),
        changes=sum(board.operations.values()),
        seconds=seconds,
        speed=await _speed(store),
        grade=await _graded(store),
        report=task.report,
        server=server,
        data=data,
    )


async def _graded(store: SharedMemoryStore) -> Grade:
    review = Review.model_validate(await store.read(REVIEW))
    planted = await asyncio.to_thread(planted_in, FOLDER / "planted.json")
    return grade(planted, review.contradictions, review.duplicates)


async def _speed(store: SharedMemoryStore) -> Speed:
    """Write and read small values from many tasks at once; these expire after a minute."""

    async def write_some(task: int) -> None:
        for number in range(_PROBES // _PROBE_TASKS):
            await store.write(f"speed-{task}", {"number": number}, ttl=_PROBE_TTL_S)

    async def read_some(task: int) -> None:
        for _ in range(_PROBES // _PROBE_TASKS):
            await store.read(f"speed-{task}")

    started = time.perf_counter()
    await asyncio.gather(*map(write_some, range(_PROBE_TASKS)))
    written = time.perf_counter()
    await asyncio.gather(*map(read_some, range(_PROBE_TASKS)))
    ended = time.perf_counter()
    return Speed(
        operations=_PROBES, writes_per_s=_PROBES / (written - started), reads_per_s=_PROBES / (ended - written)
    )


def _documents() -> dict[str, str]:
    paths = sorted(path for path in (FOLDER / "documents").iterdir() if path.suffix in {".md", ".txt"})
    return {path.stem: path.name for path in paths}


def _environment(options: Options) -> dict[str, str]:
    """Return the environment of the agents: ours, or with the settings of the options."""
    overrides = {"SHAREDMEM_REDIS_URL": options.redis_url, "SHAREDMEM_DATA_DIR": options.data_dir}
    return {**os.environ, **{name: str(value) for name, value in overrides.items() if value is not None}}


def main() -> int:
    """Run the command line; return 0 if nothing was lost, done twice or missed."""
    parser = argparse.ArgumentParser(description="Agents in processes of their own share one memory.")
    parser.add_argument("--researchers", type=int, default=3, help="researcher processes, at least 2")
    parser.add_argument("--think-s", type=float, default=1.0, help="seconds to think over a document")
    parser.add_argument("--lease-s", type=float, default=2.0, help="seconds until an unrenewed claim falls to others")
    parser.add_argument("--plain", action="store_true", help="lines instead of tables")
    try:
        return 0 if asyncio.run(run(Options(**vars(parser.parse_args())))).ok else 1
    except SharedMemoryError as error:
        sys.stderr.write(f"the demo failed: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
