"""One hub's way into the durable tier and back, put together by hand, so that a test can stop at each step of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from sharedmem import Settings
from sharedmem.clock import Clock, SystemClock
from sharedmem.durable.key_loader import KeyLoader, LoadTimes
from sharedmem.durable.loss_detection import DataLossGuard, JoinLimits
from sharedmem.durable.outbox_relay import RelayLimits
from sharedmem.durable.protocol import Durable
from sharedmem.durable.record_recovery import NamespaceRecovery, RecordRecovery
from sharedmem.hub.composition import Connect
from sharedmem.memory.record_family import MEMORY_RECORDS
from sharedmem.models import DurableRecord, Put
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import Target
from sharedmem.redis.scripts import scripts
from sharedmem.redis.scripts.data import KeyWrite
from sharedmem.redis.scripts.durable import RecordRestoreScripts
from support.outbox_harness import CACHE_MS, OutboxHarness

_ACTOR = b"ada"
JOIN_LIMITS = JoinLimits(retry_s=1, drain_s=2)


class RecoveryHarness(OutboxHarness):
    """A shore from which keys come back.

    Args:
        line, durable, clock, namespace, limit: as `OutboxHarness`.
        kinds: what the rules say, by absolute key; nothing of the others.
        times: of its loader.
        limits: of its joiner.
    """

    def __init__(
        self,
        line: RedisClient,
        durable: Durable,
        clock: Clock,
        namespace: str,
        *,
        kinds: Mapping[str, str],
        times: LoadTimes,
        limits: JoinLimits,
        limit: int = 100_000,
    ) -> None:
        super().__init__(line, durable, clock, namespace, through="", limit=limit, pace=RelayLimits())
        self.nudges: list[str] = []
        self.drains_on_load = self.drains_on_nudge = False
        """Whether the outbox is drained where a real hub would; else a test does it."""
        self.joiner = DataLossGuard(self.shores, kind_of=kinds.get, restorers={}, nudge=self.nudge, limits=limits)
        self.loader = KeyLoader(self.shores, restorers={}, drain=self.let_drain, join=self.join, times=times)
        gatherer = RecordRecovery(
            self.shores,
            RecordRestoreScripts(self.sender),
            (MEMORY_RECORDS,),
            drain=self.let_drain,
            join=self.join,
        )
        self.warmer = NamespaceRecovery(durable, self.keyspace, self.loader, gatherer)

    def epoch(self, namespace: str) -> str:
        return self.joiner.epochs.get(namespace, "")

    async def readmit(self, namespace: str, changed: Mapping[str, int], *, left_ms: int) -> set[str]:
        return await self.joiner.readmit(namespace, changed, left_ms=left_ms)

    async def let_drain(self, namespace: str) -> None:
        self.nudges.append(namespace)
        if self.drains_on_load:
            await self.drain()

    def nudge(self, namespace: str) -> None:
        self.nudges.append(namespace)
        if self.drains_on_nudge:
            self.background.start("drain", self.drain())

    def is_joined(self, namespace: str) -> bool:
        return self.joiner.is_joined(namespace)

    async def join(self, namespace: str, *, again: bool = False) -> None:
        await self.joiner.join(namespace, again=again)

    async def recall(self, target: Target, mode: str) -> bool:
        return await self.loader.recall(target, mode)

    # -- what a test does

    async def recalled(self, key: str, mode: str = "k") -> bool:
        """Bring a key back; whether it is there."""
        return await self.loader.recall(self.target(key), mode)

    async def held(self, key: str) -> str | None:
        """The value under a key in Redis, without its header."""
        raw = await self.line.call("GET", self.target(key).physical)
        return raw.partition(b"\n")[2].decode() if isinstance(raw, bytes) else None

    async def version(self, key: str) -> int:
        """The version of the value under a key in Redis; 0 without."""
        raw = await self.line.call("GET", self.target(key).physical)
        return int(raw[:16]) if isinstance(raw, bytes) else 0

    async def read(self, key: str, mode: str = "k") -> str | None:
        """The value of a key as a reader of the store gets it."""
        await self.join(self.namespace)
        for _ in range(20):
            found = await self.held(key)
            if found is not None or not await self.recalled(key, mode):
                return found
        raise AssertionError(f"{key} goes as often as it comes")

    async def evict(self, key: str) -> None:
        """Let a key go as a server short of memory does."""
        await self.line.call("DEL", self.target(key).physical)

    async def drain(self) -> None:
        await self.relay.drain(self.namespace, timeout=60)

    async def settled(self, *keys: str) -> None:
        """Let the tier have everything, and Redis nothing of these keys."""
        await self.drain()
        for key in keys:
            await self.line.call("DEL", self.target(key).physical, self.keyspace.state(self.target(key)))

    async def hset(self, key: str, mode: str = "k", **fields: str) -> None:
        pairs = [part for pair in fields.items() for part in pair]
        await self.change(key, "hset", *pairs, mode=mode)

    async def sadd(self, key: str, *members: str) -> None:
        raw = [member.encode() for member in members]
        await self.change(key, "sadd", *raw, mode="k")

    async def create(self, key: str, body: str, *, mode: str = "k") -> bytes:
        """Write a value where there is none; returns the script's reply line."""
        return (await self._write_all([KeyWrite(self.target(key), "", 0, b"json", body.encode(), mode)]))[0]

    async def write_over(self, key: str, version: int, body: str) -> bytes:
        """Write a value where that version is, 0 for none; returns the script's reply line."""
        expect = str(version) if version else ""
        return (await self._write_all([KeyWrite(self.target(key), expect, 0, b"json", body.encode(), "k")]))[0]

    async def write_each(self, modes: Mapping[str, str]) -> list[bytes]:
        """Write values together in one call, each kept in its own way; returns the reply lines."""
        return await self._write_all(
            [KeyWrite(self.target(key), "*", 0, b"json", b"1", mode) for key, mode in modes.items()]
        )

    async def _write_all(self, records: Sequence[KeyWrite]) -> list[bytes]:
        space = records[0].target.space
        return (await self.value_scripts.value_write(space, _ACTOR, records, together=False)).split(b"\n")

    async def newest_entry(self) -> bytes:
        """The id of the last entry of the outbox."""
        rows = await self.line.call("XREVRANGE", self.keyspace.outbox(self.namespace), "+", "-", "COUNT", 1)
        id_ = as_list(as_list(rows)[0])[0]
        assert isinstance(id_, bytes)
        return id_

    async def increment(self, key: str, *, mode: str = "k") -> int:
        return int((await self.change(key, "incr", 1, mode=mode))[1])

    async def use_mutant(self, name: str, old: str, new: str) -> None:
        """Run a script with one line of it changed, for a control."""
        source = scripts()[name].source
        assert source.count(old) == 1, f"{name} has not just one {old!r}"
        digest = await self.line.call("SCRIPT", "LOAD", source.replace(old, new))
        self.sender._digests[name] = digest if isinstance(digest, bytes) else str(digest).encode()


@asynccontextmanager
async def open_recovery_harness(
    connect: Connect,
    durable: Durable,
    namespace: str,
    *,
    settings: Settings,
    clock: Clock | None = None,
    kinds: Mapping[str, str] | None = None,
    times: LoadTimes | None = None,
    limits: JoinLimits = JOIN_LIMITS,
) -> AsyncIterator[RecoveryHarness]:
    """A bridge on an open line; its namespace is not cleared afterwards."""
    clock = clock or SystemClock()
    connection = await connect(settings, clock)
    try:
        await connection.client.open()
        made = RecoveryHarness(
            connection.client,
            durable,
            clock,
            namespace,
            kinds=kinds or {},
            times=times or LoadTimes(cache_ms=CACHE_MS, patience_s=5),
            limits=limits,
        )
        try:
            yield made
        finally:
            await made.background.close()
    finally:
        await connection.client.close()
        await connection.leave()


async def delete_namespace(made: RecoveryHarness) -> None:
    """Delete all keys of a bridge's namespace."""
    async for keys in made.line.scan(made.keyspace.pattern(made.namespace), near=None):
        await made.line.call("UNLINK", *keys)


async def memorised(made: RecoveryHarness) -> Callable[[], Awaitable[None]]:
    """Return a function that sets the namespace of a harness back to what it is now."""
    keys = [key async for page in made.line.scan(made.keyspace.pattern(made.namespace), near=None) for key in page]
    dumps = {key: await made.line.call("DUMP", key) for key in keys}

    async def set_back() -> None:
        await delete_namespace(made)
        for key, dump in dumps.items():
            assert isinstance(dump, bytes)
            await made.line.call("RESTORE", key, 0, dump)

    return set_back


class PausableDurable:
    """A tier in front of another one, whose calls a test can hold up and let fail.

    Args:
        durable: the real one.
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self.url, self.open, self.close = durable.url, durable.open, durable.close
        self.get, self.query, self.namespaces = durable.get, durable.query, durable.namespaces
        self.purge, self.check, self.charges = durable.purge, durable.check, durable.charges
        self.before: Callable[[str], Awaitable[None]] = _do_nothing
        """Awaited before each call, with its name."""
        self.after: Callable[[str], Awaitable[None]] = _do_nothing
        """Awaited when the answer is there and has not been handed on."""
        self.calls: list[str] = []
        self.page_size: int | None = None
        """Most documents of a page; None: as the tier pages them."""

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        await self._arrive("put")
        given = await self._durable.put(records)
        await self.after("put")
        return given

    async def records(self, key: str) -> list[DurableRecord]:
        await self._arrive("records")
        given = await self._durable.records(key)
        await self.after("records")
        return given

    async def highest(self, namespace: str) -> int:
        await self._arrive("highest")
        given = await self._durable.highest(namespace)
        await self.after("highest")
        return given

    async def iterate(
        self, namespace: str, *, changed_after: int = 0, heads_only: bool = False, after: tuple[str, str] | None = None
    ) -> AsyncIterator[list[DurableRecord]]:
        pages = self._durable.iterate(namespace, changed_after=changed_after, heads_only=heads_only, after=after)
        await self._arrive("iterate")
        async for page in pages:
            size = self.page_size or len(page)
            for first in range(0, len(page), size):
                await self.after("iterate")
                yield page[first : first + size]

    async def _arrive(self, name: str) -> None:
        self.calls.append(name)
        await self.before(name)


class PauseAtCall:
    """Stands still at one call of a tier until it is told to go on.

    Args:
        at: name of the call.
    """

    def __init__(self, at: str) -> None:
        self._at = at
        self.reached = asyncio.Event()
        self.over = asyncio.Event()

    async def __call__(self, name: str) -> None:
        if name == self._at and not self.reached.is_set():
            self.reached.set()
            await self.over.wait()


async def _do_nothing(name: str) -> None:
    """Let the call go on."""


__all__ = [
    "CACHE_MS",
    "DurabilityModes",
    "PausableDurable",
    "PauseAtCall",
    "RecoveryHarness",
    "delete_namespace",
    "memorised",
    "open_recovery_harness",
]
