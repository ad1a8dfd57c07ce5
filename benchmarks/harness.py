"""Measure two ways of doing the same thing in turn, in processes of their own, so that the ratio is reliable.

A benchmark names its sides; each is opened once in each worker process and returns a call. Rounds
alternate between the sides, so that a machine that slows down slows all of them, and the report
contains the median over the rounds. Speed and CPU come from passes without a stopwatch around each call,
latencies from passes with one.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sys
import time
import traceback
from array import array
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, Self, TypeVar, cast, runtime_checkable

import redis

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[[int], Awaitable[object]]
"""Makes one call; its argument is a number that no other running call has."""
BlockingCall = Callable[[int], object]


@runtime_checkable
class Closable(Protocol):
    """A call that leaves work behind, which must not be done while another side is measured."""

    async def rest(self) -> None:
        """Do it now; the time is not counted."""


Opener = Callable[[], AbstractAsyncContextManager[Call | BlockingCall]]
"""Opens a side in a worker process: a value that can be pickled, such as a partial of a module's function."""

_WARM_UP_S = 0.05
_HEAD_START_S = 0.03
_TIMED_PART = 0.5


class Load(NamedTuple):
    """The number of concurrent callers."""

    name: str
    tasks: int = 1
    processes: int = 1
    blocking: bool = False
    """Whether calls block their thread instead of being awaited."""
    one_core: bool = False
    """Whether client and server share one core: this measures their own work, without the time that
    this machine (above all a virtual one) takes to wake an idle core."""


@dataclass(frozen=True)
class Effort:
    """The length of a measurement: `rounds` of about `seconds` for each side."""

    rounds: int
    seconds: float


class Figures(NamedTuple):
    """The measured values of one side in one round, or the median of all rounds."""

    calls_per_s: float
    p50_us: float
    p99_us: float
    client_us: float
    """CPU microseconds of the client processes for a call."""
    server_us: float
    """CPU microseconds of the server for a call."""


@dataclass(frozen=True)
class PassOrder:
    """One pass: `tasks` tasks in each process call a side for `seconds`."""

    side: str
    tasks: int
    seconds: float
    blocking: bool
    timed: bool
    begin_at: float
    """On the monotonic clock, which all processes of a machine share."""


@dataclass(frozen=True)
class PassResult:
    """The result of one process in a pass."""

    calls: int
    seconds: float
    cpu_s: float
    latencies_ns: array[int]


# -- the server ------------------------------------------------------------------------------------


class Server:
    """The private server under test, with a connection for its own statistics.

    Attributes:
        urls: its addresses by the name of the transport.
    """

    def __init__(self, unix_url: str, tcp_url: str) -> None:
        self.urls = {"unix": unix_url, "tcp": tcp_url}
        self._redis = redis.Redis.from_url(unix_url)
        # Neither side may be measured while the server rewrites its log.
        self._redis.config_set("auto-aof-rewrite-percentage", 0)

    def cpu_s(self) -> float:
        """CPU seconds that the server has used."""
        used = self._info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    def memory_bytes(self) -> int:
        """Return the bytes of its data, without the buffers of clients and log."""
        used = self._info("memory")
        return int(used["used_memory"] - used["mem_clients_normal"] - used["mem_aof_buffer"])

    def empty(self) -> None:
        """Delete everything."""
        self._redis.flushall()

    def delete(self, key: str) -> None:
        """Delete one key."""
        self._redis.delete(key)

    @property
    def version(self) -> str:
        """Version of the server."""
        return str(self._info("server")["redis_version"])

    def keep_to(self, cores: set[int]) -> None:
        """Restrict its threads to these cores (Linux)."""
        _pin(str(self._info("server")["process_id"]), cores)

    def _info(self, section: str) -> dict[str, float]:
        return cast("dict[str, float]", self._redis.info(section))

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


@contextmanager
def private_server(*, modules: Collection[str] = ("search", "json")) -> Iterator[Server]:
    """Start an embedded server with a socket, a TCP port and data of its own; delete it when the block ends."""
    from sharedmem.embedded.server import EmbeddedServer  # noqa: PLC0415  # workers with other code do not need it

    with TemporaryDirectory(prefix="sm-bench-") as folder, asyncio.Runner() as runner:
        embedded = runner.run(EmbeddedServer.join(Path(folder), modules=modules, port=_free_port()))
        server = Server(embedded.url, str(embedded.tcp_url))
        try:
            yield server
        finally:
            server.close()
            runner.run(embedded.leave())


def _free_port() -> int:
    import socket  # noqa: PLC0415  # only the start needs it

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


# -- the processes ---------------------------------------------------------------------------------


@dataclass
class WorkerState:
    """The open sides of a worker process."""

    calls: dict[str, Call | BlockingCall] = field(default_factory=dict)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)


class Fleet:
    """Worker processes, each with an event loop that does one job after the other.

    Args:
        size: the number of processes.
        code: a folder with another version of the package, which they import; None: that of this process.
    """

    def __init__(self, size: int, *, code: Path | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._links: list[Connection] = []
        self._processes = []
        for _ in range(size):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            with _path_begins_with(code):
                process.start()
            self._links.append(mine)
            self._processes.append(process)

    def begin(
        self, worker: int, job: Callable[Concatenate[WorkerState, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Callable[[], T]:
        """Give a worker a job; the returned function waits for its result.

        Args:
            worker: its number, from 0; it must have no other job.
            job: a coroutine function of a module.
            args, kwargs: further arguments of the job; they are pickled.

        Raises (on waiting):
            RuntimeError: the job failed; with its traceback.
        """
        link = self._links[worker]
        link.send((job, args, kwargs))

        def wait() -> T:
            failure, result = link.recv()
            if failure is not None:
                raise RuntimeError(f"worker {worker} failed:\n{failure}")
            return cast("T", result)

        return wait

    def ask(
        self, workers: int, job: Callable[Concatenate[WorkerState, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> list[T]:
        """Let the first `workers` do the same job at the same time; return their results in order."""
        waits = [self.begin(worker, job, *args, **kwargs) for worker in range(workers)]
        return [wait() for wait in waits]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            link.close()
        for process in self._processes:
            process.join(timeout=5)
            process.terminate()


@contextmanager
def _path_begins_with(code: Path | None) -> Iterator[None]:
    """Let new processes import from a folder first: they get the path of this one."""
    before = sys.path[:]
    sys.path[:0] = [] if code is None else [str(code)]
    try:
        yield
    finally:
        sys.path[:] = before


def _serve(link: Connection) -> None:
    """Run a worker: jobs come through the pipe until it is closed."""
    asyncio.run(_work(link))


async def _work(link: Connection) -> None:
    desk = WorkerState()
    while True:
        try:
            job, args, kwargs = await asyncio.to_thread(link.recv)
        except (EOFError, KeyboardInterrupt):
            return
        try:
            failure, result = None, await job(desk, *args, **kwargs)
        except Exception:  # noqa: BLE001  # sent to the process that gave the job
            failure, result = traceback.format_exc(), None
        link.send((failure, result))


async def open_sides(desk: WorkerState, openers: Mapping[str, Opener]) -> None:
    """Run a job: open sides, and keep them open."""
    for name, opener in openers.items():
        desk.calls[name] = await desk.stack.enter_async_context(opener())


async def close_sides(desk: WorkerState) -> None:
    """Run a job: close what was opened."""
    await desk.stack.aclose()
    desk.calls.clear()


async def keep_to(_: WorkerState, cores: set[int]) -> None:
    """Run a job: restrict the process to these cores (Linux)."""
    _pin("self", cores)


def _pin(process: str, cores: set[int]) -> None:
    for thread in Path("/proc", process, "task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def can_choose_cores() -> bool:
    """Return whether this system lets a process choose its cores."""
    return hasattr(os, "sched_setaffinity")


@contextmanager
def _placed(fleets: Collection[Fleet], servers: Collection[Server], load: Load) -> Iterator[None]:
    """Keep clients and servers on one core if the load requires it."""
    if not load.one_core:
        yield
        return
    every = os.sched_getaffinity(0)
    one = {min(every)}
    for fleet in fleets:
        fleet.ask(load.processes, keep_to, one)
    for server in servers:
        server.keep_to(one)
    try:
        yield
    finally:
        for fleet in fleets:
            fleet.ask(load.processes, keep_to, every)
        for server in servers:
            server.keep_to(every)


# -- passes ----------------------------------------------------------------------------------------


async def run_pass(desk: WorkerState, order: PassOrder) -> PassResult:
    """Run a job: repeat the call until the time is over."""
    shift = _Shift(order)
    gc.collect()
    await asyncio.sleep(max(0.0, order.begin_at - time.monotonic()))
    begun, cpu_s = time.monotonic(), time.process_time()
    if order.blocking:
        shift.work_blocking(desk.calls[order.side])
    else:
        await shift.work(cast("Call", desk.calls[order.side]))
    cpu_s = time.process_time() - cpu_s
    seconds = time.monotonic() - begun
    if isinstance(call := desk.calls[order.side], Closable):
        await call.rest()
    return PassResult(shift.calls, seconds, cpu_s, shift.latencies_ns)


class _Shift:
    """The tasks of one process in one pass."""

    def __init__(self, order: PassOrder) -> None:
        self._order = order
        self._over = False
        self.calls = 0
        self.latencies_ns = array("q")

    async def work(self, call: Call) -> None:
        """Run the calls in concurrent tasks; a timer ends them, which costs a call nothing."""
        tasks = self._order.tasks
        act = self._timed if self._order.timed else self._plain
        asyncio.get_running_loop().call_later(self._order.seconds, self._end)
        if tasks == 1:
            await act(call, count())
        else:
            await asyncio.gather(*(act(call, count(task, tasks)) for task in range(tasks)))

    def work_blocking(self, call: BlockingCall) -> None:
        """Call from this thread."""
        now, numbers = time.perf_counter_ns, count()
        last = now() + int(self._order.seconds * 1e9)
        begun = 0
        while begun < last:
            begun = now()
            call(next(numbers))
            self.latencies_ns.append(now() - begun)
        self.calls = len(self.latencies_ns)

    def _end(self) -> None:
        self._over = True

    async def _plain(self, call: Call, numbers: count[int]) -> None:
        made = 0
        while not self._over:
            await call(next(numbers))
            made += 1
        self.calls += made

    async def _timed(self, call: Call, numbers: count[int]) -> None:
        now, latencies = time.perf_counter_ns, self.latencies_ns
        while not self._over:
            begun = now()
            await call(next(numbers))
            latencies.append(now() - begun)


def _whole_pass(fleet: Fleet, load: Load, side: str, seconds: float, *, timed: bool) -> list[PassResult]:
    begin_at = time.monotonic() + (_HEAD_START_S if load.processes > 1 else 0.0)
    return fleet.ask(load.processes, run_pass, PassOrder(side, load.tasks, seconds, load.blocking, timed, begin_at))


def _round(fleet: Fleet, server: Server, load: Load, side: str, seconds: float) -> Figures:
    before = server.cpu_s()
    parts = _whole_pass(fleet, load, side, seconds, timed=False)
    server_s = server.cpu_s() - before
    timed = _whole_pass(fleet, load, side, seconds * _TIMED_PART, timed=True)
    latencies = sorted(latency for part in timed for latency in part.latencies_ns)
    calls = sum(part.calls for part in parts)
    return Figures(
        calls_per_s=sum(part.calls / part.seconds for part in parts),
        p50_us=percentile(latencies, 0.50) / 1000,
        p99_us=percentile(latencies, 0.99) / 1000,
        client_us=sum(part.cpu_s for part in parts) / calls * 1e6,
        server_us=server_s / calls * 1e6,
    )


def percentile(ordered: list[int] | list[float], share: float) -> float:
    """Return the value below which `share` of a sorted list is."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


# -- comparisons -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """All rounds of all sides under one load."""

    rounds: dict[str, list[Figures]]

    def fastest(self, sides: list[str]) -> str:
        """Return the side with the best median speed."""
        return max(sides, key=lambda side: self.medians(side).calls_per_s)

    def medians(self, side: str) -> Figures:
        """Return the median of each figure over the rounds."""
        return Figures(*(median(values) for values in zip(*self.rounds[side], strict=True)))

    def ratios(self, side: str, other: str) -> Figures:
        """Return the median over the rounds of `side` divided by `other`; rounds are compared pair by pair."""
        pairs = zip(self.rounds[side], self.rounds[other], strict=True)
        divided = [[ours / max(bare, 1e-9) for ours, bare in zip(*pair, strict=True)] for pair in pairs]
        return Figures(*(median(values) for values in zip(*divided, strict=True)))


def compare(fleet: Fleet, server: Server, sides: list[str], load: Load, effort: Effort) -> Comparison:
    """Measure the open sides of the workers in turn, round by round."""
    return compare_places(dict.fromkeys(sides, (fleet, server)), load, effort)


def compare_places(places: Mapping[str, tuple[Fleet, Server]], load: Load, effort: Effort) -> Comparison:
    """As `compare`, of sides that are open in different workers, or on different servers."""
    sides = list(places)
    rounds: dict[str, list[Figures]] = {side: [] for side in sides}
    fleets, servers = (list(dict.fromkeys(each)) for each in zip(*places.values(), strict=True))
    with _placed(fleets, servers, load):
        for side in sides:
            _whole_pass(places[side][0], load, side, _WARM_UP_S, timed=False)
        for number in range(effort.rounds):
            turn = number % len(sides)
            for side in sides[turn:] + sides[:turn]:
                rounds[side].append(_round(*places[side], load, side, effort.seconds))
    return Comparison(rounds)


def machine() -> dict[str, str]:
    """Return the properties of the machine that affect the results."""
    import platform  # noqa: PLC0415  # once a run
    from importlib.metadata import version  # noqa: PLC0415  # likewise

    packages = {name: version(name) for name in ("redis", "hiredis")}
    return {"python": platform.python_version(), "system": platform.system(), "cores": str(os.cpu_count())} | packages
