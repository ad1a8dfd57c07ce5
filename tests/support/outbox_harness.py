"""One hub's way into the durable tier, put together by hand, so that a test can stop at each step of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager

from sharedmem import Settings
from sharedmem.clock import Clock, SystemClock, new_id
from sharedmem.data.keys import REPLY_COLD
from sharedmem.durable.outbox_relay import OutboxRelay, RelayLimits
from sharedmem.durable.protocol import Durable, DurableContext
from sharedmem.errors import InternalError, UnavailableError
from sharedmem.hub import Connect
from sharedmem.models import DurableRecord, Outcome, Put
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import DurabilityModes
from sharedmem.redis.keys import KeySpace, Target
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.data import CollectionChange, DataScripts, KeyWrite, ValueScripts
from sharedmem.redis.scripts.durable import DurableScripts, NamespaceJoinKeys
from sharedmem.redis.scripts.executor import DurableScriptExecutor, OperationLedger, split_version
from sharedmem.runtime import Counters
from sharedmem.runtime.concurrency import Background

CACHE_MS = 3_600_000
OpenOutboxHarness = Callable[..., Awaitable["OutboxHarness"]]
# An actor's name goes with each document.
_ACTOR = b"ada"


class OutboxHarness:
    """What a hub has between its callers and the tier.

    Args:
        line: the way to the server.
        durable: the tier.
        clock: of the hub.
        namespace: where the keys of a test lie.
        through: kinds of which a change waits for the tier, as letters.
        limit: how many changes may wait.
        pace: of the relay.
    """

    def __init__(
        self,
        line: RedisClient,
        durable: Durable,
        clock: Clock,
        namespace: str,
        *,
        through: str,
        limit: int,
        pace: RelayLimits,
    ) -> None:
        self.line = line
        self.durable = durable
        self.namespace = namespace
        self.keyspace = KeySpace("sm", new_id())
        self.counters = Counters()
        self.background = Background(self.counters)
        self._through, self._limit = through, limit
        self._joined = False
        self.sender = DurableScriptExecutor(line, OperationLedger(clock, retry_for_s=5), self, change_log_length=1000)
        self.keeping = DurableScripts(self.sender)
        self.mutations = DataScripts(self.sender)
        self.value_scripts = ValueScripts(self.sender)
        self.shores = DurableContext(
            client=line,
            keyspace=self.keyspace,
            executor=self.sender,
            background=self.background,
            counters=self.counters,
            clock=clock,
            settings=Settings(embedder="none"),
            scripts=self.keeping,
            durable=durable,
        )
        self.relay = OutboxRelay(self.shores, cache_ms=CACHE_MS, limits=pace, readmit=self.readmit)

    # -- as the senders of scripts see the tier

    def extras(self, keep: DurabilityModes) -> tuple[list[bytes], tuple[str, str, int, str]]:
        states = [self.keyspace.state(target) for target in keep.targets]
        service = [self.keyspace.outbox(self.namespace), self.keyspace.kept(self.namespace)]
        return [*service, *states], (
            keep.modes,
            self._through,
            self._limit,
            self.epoch(keep.targets[0].space.namespace),
        )

    def epoch(self, namespace: str) -> str:  # noqa: ARG002  # Redis never loses anything here
        return ""

    async def readmit(self, namespace: str, changed: Mapping[str, int], *, left_ms: int) -> set[str]:  # noqa: ARG002
        """Redis never loses anything here."""
        return set()

    def note(self, namespace: str) -> None:
        self.relay.note(namespace)

    def is_joined(self, namespace: str) -> bool:
        return self._joined and namespace == self.namespace

    def is_ready(self, namespace: str) -> bool:
        return self.is_joined(namespace)

    async def join(self, namespace: str, *, again: bool = False) -> None:
        if again or not self._joined:
            space = self.keyspace.space(namespace)
            await self.keeping.namespace_join(
                NamespaceJoinKeys(space.clock, space.changes, self.keyspace.kept(namespace)),
                highest=0,
                token="-",
                lease_ms=0,
            )
        self._joined = True

    async def recall(self, target: Target, mode: str) -> bool:  # noqa: ARG002  # nothing is ever brought back here
        await self.line.call("SET", self.keyspace.state(target), "missing", "PX", 30_000)
        return False

    async def recall_all(self, keep: DurabilityModes) -> None:
        for target, mode in zip(keep.targets, keep.modes, strict=True):
            await self.recall(target, mode)

    async def documents(self, target: Target) -> list[DurableRecord]:
        raise InternalError(f"{target.key}: no test reads documents here")

    def absent(self, namespace: str, present: Container[str]) -> AsyncIterator[list[str]]:
        raise InternalError(f"{namespace}: no test lists keys here, {present} or not")

    async def clear(self, namespace: str, stamp: int) -> None:
        raise InternalError(f"{namespace}: no test clears here, at {stamp} or else")

    def logs(self, namespace: str, scope: str) -> AsyncIterator[list[str]]:
        raise InternalError(f"{namespace}: no test lists logs of {scope} here")

    async def settle(self, namespace: str, entries: Sequence[bytes], changed: Mapping[str, int] | None = None) -> None:
        await self.relay.settle(namespace, entries, changed)

    # -- what a test does

    def target(self, key: str) -> Target:
        return self.keyspace.target(f"{self.namespace}:shared:{key}")

    def keep(self, key: str, mode: str = "k") -> DurabilityModes:
        return DurabilityModes((self.target(key),), mode)

    async def write(self, key: str, body: str, *, mode: str = "k", ttl_ms: int = 0) -> int:
        """Write a value that is kept; returns its version."""
        record = KeyWrite(self.target(key), "*", ttl_ms, b"json", body.encode(), mode)
        return int(await self.value_scripts.value_write(record.target.space, _ACTOR, [record], together=False))

    async def write_many(self, bodies: dict[str, str], *, mode: str = "k") -> None:
        """Write values that are kept, in one step."""
        records = [KeyWrite(self.target(key), "*", 0, b"json", body.encode(), mode) for key, body in bodies.items()]
        await self.value_scripts.value_write(self.keyspace.space(self.namespace), _ACTOR, records, together=False)

    async def append(self, key: str, member: str, *, mode: str = "k") -> int:
        """Append to a list that is kept; returns the version."""
        version, _ = await self.change(key, "append", member.encode(), mode=mode)
        return version

    async def change(self, key: str, operation: str, *arguments: Argument, mode: str) -> tuple[int, bytes]:
        """Change a list, hash, set or counter that is kept; returns the version and the result."""
        change = CollectionChange(self.target(key), operation, arguments, 0, 0, mode, 0)
        while True:
            reply = await self.mutations.collection_change(change.target.space, _ACTOR, [change])
            if reply != REPLY_COLD:
                return split_version(reply)
            await self.recalled(key, mode)

    async def recalled(self, key: str, mode: str = "k") -> bool:
        """Look for a key in the tier; whether it has come back."""
        return await self.recall(self.target(key), mode)

    async def delete(self, key: str, *, mode: str = "k") -> int:
        """Delete a key that is kept; returns the version."""
        version, _ = await self.mutations.key_delete(self.target(key), _ACTOR, keep=self.keep(key, mode))
        return version

    async def state(self, key: str) -> str:
        """The first word of a key's state, empty when it has none."""
        held = await self.line.call("GET", self.keyspace.state(self.target(key)))
        return held.decode().partition(" ")[0] if isinstance(held, bytes) else ""

    async def waiting(self) -> int:
        """How many changes wait."""
        length = await self.line.call("XLEN", self.keyspace.outbox(self.namespace))
        assert isinstance(length, int)
        return length

    async def is_empty(self) -> bool:
        return not await self.waiting()

    async def kept(self, key: str) -> DurableRecord | None:
        """The head of a key in the tier."""
        return await self.durable.get(self.target(key).key)

    async def leave_junk(self, name: bytes = b"no document at all", body: bytes = b"?") -> None:
        """Put something into the outbox that cannot be understood."""
        await self.line.call("XADD", self.keyspace.outbox(self.namespace), "*", name, body)


@asynccontextmanager
async def open_outbox_harness(
    connect: Connect,
    durable: Durable,
    namespace: str,
    *,
    settings: Settings,
    clock: Clock | None = None,
    through: str = "",
    limit: int = 100_000,
    pace: RelayLimits | None = None,
) -> AsyncIterator[OutboxHarness]:
    """A shore on an open line; its work ends with the block, and what is left in the outbox stays there."""
    clock = clock or SystemClock()
    connection = await connect(settings, clock)
    try:
        await connection.client.open()
        made = OutboxHarness(
            connection.client, durable, clock, namespace, through=through, limit=limit, pace=pace or RelayLimits()
        )
        try:
            yield made
        finally:
            await made.background.close()
    finally:
        await connection.client.close()
        await connection.leave()


class FaultyDurable:
    """A tier in front of another one, which fails or stands still when a test says so.

    Args:
        durable: the real one.
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self.fault: Callable[[Sequence[DurableRecord]], Exception | None] = lambda _: None
        self.after: Callable[[Sequence[DurableRecord]], Exception | None] = lambda _: None
        """As `fault`, but asked when the documents are stored already: a reply that is lost."""
        self.answer: Callable[[DurableRecord], Put | None] = lambda _: None
        """An answer that is given to a document instead of storing it."""
        self.stores = 1.0
        """Which part of the documents gets there before a reply is lost."""
        self.puts: list[list[DurableRecord]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.query, self.iterate, self.highest = durable.query, durable.iterate, durable.highest
        self.get, self.records, self.namespaces = durable.get, durable.records, durable.namespaces
        self.purge, self.check, self.charges = durable.purge, durable.check, durable.charges
        self.open, self.close, self.url = durable.open, durable.close, durable.url

    async def put(self, records: Sequence[DurableRecord]) -> list[Put]:
        self.puts.append(list(records))
        await self.gate.wait()
        if (error := self.fault(records)) is not None:
            raise error
        if self.stores < 1:
            records = records[: round(len(records) * self.stores)]
        answers = {record.stamp: answer for record in records if (answer := self.answer(record)) is not None}
        stored = iter(await self._durable.put([record for record in records if record.stamp not in answers]))
        if (error := self.after(records)) is not None:
            raise error
        return [answers[record.stamp] if record.stamp in answers else next(stored) for record in records]


def unavailable_error() -> UnavailableError:
    return UnavailableError("the tier", "it is away", retry_after=0.01)


def reject_key(team: OutboxHarness, key: str) -> Callable[..., Put | None]:
    full = team.target(key).key
    return lambda record: Put(outcome=Outcome.REFUSED, reason="too large") if record.key == full else None
