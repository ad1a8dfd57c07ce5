"""Change feed of a namespace: watch it from a cursor, or share it within a consumer group."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, cast

from sharedmem.context import HubContext
from sharedmem.data.keys import check_integer
from sharedmem.errors import InvalidError, UsageError
from sharedmem.models import Change, Gap
from sharedmem.redis.change_stream import (
    BATCH,
    START,
    as_list,
    is_packet,
    newest_cursor,
    next_changes,
    next_changes_commands,
    parse_change,
    position,
    read_changes,
    text_of,
)
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import LONGEST_TTL_S
from sharedmem.redis.keys import GROUP_PARTS, Space, check_name
from sharedmem.redis.multiplexer import MultiplexedConnection
from sharedmem.redis.replies import (
    Argument,
    Command,
    LostError,
    Reply,
    ServerError,
    public_error,
    raise_if_error,
)
from sharedmem.redis.scope import Scope
from sharedmem.redis.scripts.data import GroupKeys, GroupScripts
from sharedmem.runtime import get_logger
from sharedmem.runtime.concurrency import Background, ProcessBound

if TYPE_CHECKING:
    from sharedmem.redis.near_cache import NearCache

_CONSUMER_BATCH = 50
_CONSUMER_WAIT_S = 1.0
_MOST_DEAD_LETTERS = 10_000
_MOST_REMEMBERED = 10_000
_consumer_logger = get_logger("consumers")


class _PendingEntry(NamedTuple):
    """An entry that was delivered and is not acknowledged."""

    position: tuple[int, int]
    stream: bytes
    id: str
    deliveries: int


class Consumer(ProcessBound):
    """One consumer of a group: an async iterator of the changes that it must handle.

    A change that is not acknowledged is delivered again: to this consumer after a restart under its name, or to
    another one after `idle` seconds. So handle changes idempotently, by version. Changes are redelivered one by one,
    so a change that crashes its consumers does not take other changes into the dead letters.
    """

    # The server delivers and acknowledges entries, so the changes of a packet move to a stream of the group first, one
    # by one (`lua/packet_split.lua`). What is there is older than what the group has not read, and is delivered before.

    def __init__(
        self,
        client: RedisClient,
        scripts: GroupScripts,
        keys: GroupKeys,
        dead_letters: bytes,
        *,
        group: str,
        name: str,
        idle_ms: int,
        max_deliveries: int,
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self.group = group
        self.name = name
        self._idle_ms = idle_ms
        self._max_deliveries = max_deliveries
        self._dead_key = dead_letters
        self._after = {keys.changes: "-", keys.split: "-"}
        # Changes that are entries under their cursors, by the stream: no script is needed to acknowledge them.
        self._delivered: dict[bytes, set[str]] = {keys.changes: set(), keys.split: set()}
        # Prefetched changes count as delivered: with max_deliveries=1 none may be prefetched.
        self._batch = _CONSUMER_BATCH if max_deliveries > 1 else 1

    async def join(self, start: str) -> None:
        """Create the group, beginning at `start`, unless it exists. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `write`.
        """
        try:
            await self._scripts.group_join(self._keys, group=self.group, start=start)
        except ServerError as error:
            raise public_error(error, self._client.address) from error

    async def __aiter__(self) -> AsyncIterator[Change]:
        # First the unacknowledged changes of this consumer, then the ones of idle consumers, then new ones.
        async for change in self._own_pending():
            yield change
        while True:
            if (abandoned := await self._claim_idle()) is not None:
                yield abandoned
                continue
            async for change in self._fresh():
                yield change

    async def ack(self, *changes: Change) -> int:
        """Acknowledge changes; return how many of them were pending in this group. One round trip.

        Raises:
            UnavailableError, AccessDeniedError: as `write`.
        """
        cursors = [change.cursor for change in changes]
        if not cursors:
            return 0
        for stream, known in self._delivered.items():
            if known.issuperset(cursors):
                known.difference_update(cursors)
                done = await self._client.call("XACK", stream, self.group, *cursors)
                return done if isinstance(done, int) else 0
        return await self._scripts.change_ack(self._keys, group=self.group, cursors=cursors)

    async def pending(self) -> int:
        """Return how many changes of the group are delivered but not acknowledged. One round trip.

        Changes that were made at the same moment count as one until the consumer that received them hands them out.
        """
        summaries = await asyncio.gather(*(self._pending_in(stream) for stream in self._after))
        return sum(summary[0] for summary in summaries if summary and isinstance(summary[0], int))

    async def dead_letters(self) -> list[Change]:
        """Return the changes that became dead letters, oldest first. One round trip."""
        entries = as_list(await self._client.call("XRANGE", self._dead_key, "-", "+", "COUNT", _MOST_DEAD_LETTERS))
        letters = {letter.cursor: letter for letter in map(parse_change, map(_unwrap, entries))}
        return sorted(letters.values(), key=lambda letter: letter.version)

    async def _own_pending(self) -> AsyncIterator[Change]:
        """Yield the changes that were delivered to this consumer and are not acknowledged."""
        while (found := await self._first_pending(own=True)) is not None:
            self._after[found.stream] = f"({found.id}"
            entry = await self._claim(found, idle_ms=0)
            if entry is not None and is_packet(entry):
                await self._split([entry])
                while entries := await self._read(self._keys.split):
                    for each in entries:
                        yield parse_change(each)
            elif entry is not None and (change := await self._deliver(entry, found.deliveries)) is not None:
                yield change

    async def _claim_idle(self) -> Change | None:
        """Claim the oldest change of an idle consumer; return it, or None."""
        while (found := await self._first_pending(own=False)) is not None:
            entry = await self._claim(found, idle_ms=self._idle_ms)
            if entry is not None and is_packet(entry):
                await self._split([entry])
            elif entry is not None and (change := await self._deliver(entry, found.deliveries)) is not None:
                return change
        return None

    async def _fresh(self) -> AsyncIterator[Change]:
        """Yield new changes, after waiting for some."""
        try:
            entries = await self._read(self._keys.split)
            if not entries:
                entries = await self._read_changes()
        except LostError as error:
            # The server may have delivered changes whose reply was lost: they are pending here.
            _consumer_logger.warning("consumer %s of %s: %s", self.name, self.group, error)
            async for change in self._own_pending():
                yield change
            return
        for entry in entries:
            yield parse_change(entry)

    async def _read_changes(self) -> list[Reply]:
        """Wait for new entries of the change stream; return those before the first packet."""
        entries = await self._read(self._keys.changes, wait_ms=int(_CONSUMER_WAIT_S * 1000))
        alone = list(takewhile(lambda entry: not is_packet(entry), entries))
        # What follows a packet moves with it, so that the changes stay in order; other consumers may take some.
        await self._split(entries[len(alone) :])
        self._note_delivered(self._keys.changes, alone)
        return alone

    def _note_delivered(self, stream: bytes, entries: Sequence[Reply]) -> None:
        """Remember which changes are entries under their cursors."""
        known = self._delivered[stream]
        if len(known) > _MOST_REMEMBERED:  # this consumer does not acknowledge what it gets
            known.clear()
        known.update(_id_of(entry) for entry in entries if not _is_wrapped(entry) and not is_packet(entry))

    async def _read(self, stream: bytes, *, wait_ms: int | None = None) -> list[Reply]:
        """Return entries that no consumer of the group has; the server delivers them to this one.

        Raises:
            LostError: the connection was lost; the server may have delivered some.
            UnavailableError, AccessDeniedError: as `write`.
        """
        reader: list[Argument] = ["GROUP", self.group, self.name, "COUNT", self._batch]
        blocking = () if wait_ms is None else ("BLOCK", wait_ms)
        try:
            reply = await self._client.block(
                "XREADGROUP", *reader, *blocking, "STREAMS", stream, ">", wait_s=_CONSUMER_WAIT_S
            )
        except ServerError as error:
            if stream == self._keys.split and _lacks_group(error):
                # The namespace was cleared. Another consumer may create it first: then this fails, too.
                with suppress(ServerError):
                    await self._client.call("XGROUP", "CREATE", stream, self.group, "0", "MKSTREAM")
                return []
            raise public_error(error, self._client.address) from error
        entries = [entry for found in as_list(reply) for entry in as_list(as_list(found)[1])]
        if entries:
            self._after[stream] = f"({_id_of(entries[-1])}"
        if stream == self._keys.changes:
            return entries
        self._note_delivered(stream, entries)
        return list(map(_unwrap, entries))

    async def _split(self, entries: Sequence[Reply]) -> None:
        """Move the changes of delivered entries to the stream of the group."""
        if entries:
            await self._scripts.packet_split(self._keys, group=self.group, ids=[_id_of(entry) for entry in entries])

    async def _first_pending(self, *, own: bool) -> _PendingEntry | None:
        """Return the oldest unacknowledged entry of this consumer behind the last one, or of any idle consumer."""
        whose = {
            stream: (after, "+", 1, self.name) if own else ("IDLE", self._idle_ms, "-", "+", 1)
            for stream, after in self._after.items()
        }
        found = await asyncio.gather(*(self._pending_in(stream, *which) for stream, which in whose.items()))
        entries = []
        for stream, rows in zip(whose, found, strict=True):
            for id_, _, _, deliveries in map(as_list, rows):
                count = deliveries if isinstance(deliveries, int) else 0
                entries.append(_PendingEntry(position(text_of(id_)), stream, text_of(id_), count))
        return min(entries, default=None)

    async def _pending_in(self, stream: bytes, *which: Argument) -> list[Reply]:
        try:
            return as_list(await self._client.call("XPENDING", stream, self.group, *which))
        except ServerError as error:
            if stream == self._keys.split and _lacks_group(error):
                return []  # the namespace was cleared
            raise

    async def _claim(self, found: _PendingEntry, *, idle_ms: int) -> Reply:
        """Claim an entry and return it; None if another consumer has it, or it was trimmed."""
        reply = await self._client.call("XCLAIM", found.stream, self.group, self.name, idle_ms, found.id)
        entries = list(filter(as_list, as_list(reply)))
        self._note_delivered(found.stream, entries)
        return next(map(_unwrap, entries), None)

    async def _deliver(self, entry: Reply, deliveries: int) -> Change | None:
        """Return the change of a claimed entry; None if it became a dead letter."""
        if deliveries < self._max_deliveries:
            return parse_change(entry)
        cursor, fields = as_list(entry)
        words: list[Argument] = [field for field in as_list(fields) if isinstance(field, bytes)]
        # Under a new id: changes become dead letters in any order, and twice if a reply was lost.
        await self._client.call(
            "XADD", self._dead_key, "MAXLEN", "~", _MOST_DEAD_LETTERS, "*", "cursor", text_of(cursor), *words
        )
        await self._scripts.change_ack(self._keys, group=self.group, cursors=[text_of(cursor)])
        return None


def _unwrap(entry: Reply) -> Reply:
    """Return an entry under its cursor: dead letters, and some entries of a group's stream, have ids of their own."""
    fields = as_list(as_list(entry)[1])
    return [fields[1], fields[2:]] if _is_wrapped(entry) else entry


def _is_wrapped(entry: Reply) -> bool:
    return as_list(as_list(entry)[1])[:1] == [b"cursor"]


def _id_of(entry: Reply) -> str:
    return text_of(as_list(entry)[0])


def _lacks_group(error: ServerError) -> bool:
    return "NOGROUP" in error.text or "requires the key to exist" in error.text  # so says fakeredis


# An idle reader reads again this often, so that it notices a dead connection.
_WAIT_S = 2.0
_SHORTEST_IDLE_S = 0.001
# Stream ids are pairs of unsigned 64-bit numbers.
_CURSOR = re.compile(r"[0-9]{1,19}(-[0-9]{1,19})?")
_logger = get_logger("feed")


class ChangeTail:
    """Waits for changes of a namespace: all watchers of a hub that have read everything share one blocking read.

    Args:
        client: the client of the server.
        space: the namespace.
        background: runs the blocking reads.
    """

    def __init__(self, client: RedisClient, space: Space, background: Background) -> None:
        self._client = client
        self._space = space
        self._background = background
        self._since = START
        self._round: asyncio.Future[list[Change]] | None = None
        self._waiting = 0
        self._link: MultiplexedConnection | None = None

    async def wait(self, cursor: str) -> list[Change]:
        """Return the next changes after a cursor as soon as there are some.

        Empty if the watcher must read by itself: nothing came for a while, the connection was lost, changes may have
        been trimmed, or the running read began after the cursor.

        Raises:
            ConfigError, AccessDeniedError: the server refuses this user.
        """
        if self._round is None:
            self._begin(cursor)
        elif position(self._since) > position(cursor):
            return []
        assert self._round is not None
        self._waiting += 1
        try:
            changes = await asyncio.shield(self._round)
        except ServerError as error:
            raise public_error(error, self._client.address) from error
        finally:
            self._waiting -= 1
        seen = position(cursor)
        return [change for change in changes if position(change.cursor) > seen]

    def _begin(self, cursor: str) -> None:
        """Begin a blocking read."""
        self._client.check()
        self._link = self._link or self._client.sibling(wait_s=_WAIT_S)
        self._since = cursor
        self._round = begun = asyncio.get_running_loop().create_future()
        commands = next_changes_commands(self._space, cursor, wait_ms=int(_WAIT_S * 1000))
        posted = None if self._link is None else [self._link.post(command) for command in commands]
        if posted is not None and None not in posted:
            replies = asyncio.gather(*cast("list[asyncio.Future[Reply]]", posted))
            replies.add_done_callback(partial(self._note, begun))
            return
        try:
            work = self._background.start("follow changes", self._read(begun, commands))
        except UsageError:
            self._round = None
            raise
        # The hub may close before its first step, or meanwhile.
        work.when_done(partial(self._end, begun, []))

    async def _read(self, begun: asyncio.Future[list[Change]], commands: Sequence[Command]) -> None:
        """Read where nothing can be sent at once: without a connection, or on a pool."""
        link = self._link
        call = self._client.block_each(commands, wait_s=_WAIT_S) if link is None else link.send_each(commands)
        replies: asyncio.Future[list[Reply]] = asyncio.ensure_future(call)
        replies.add_done_callback(partial(self._note, begun))
        await asyncio.wait([replies])

    def _note(self, begun: asyncio.Future[list[Change]], replies: asyncio.Future[list[Reply]]) -> None:
        """Pass the replies of a blocking read to the watchers."""
        try:
            found = [raise_if_error(reply) for reply in replies.result()]
            self._end(begun, next_changes(self._since, found))
        except asyncio.CancelledError:  # the hub is closing
            self._end(begun, [])
        except (LostError, UsageError) as error:
            # The next read shows whether the server is back.
            _logger.warning("watching %s: %s", self._space.namespace, error)
            self._end(begun, [])
        except Exception as error:  # noqa: BLE001  # whatever it is, the watchers raise it
            if isinstance(error, ServerError) and error.is_transient:
                return self._end(begun, [])
            if not begun.done():
                begun.set_exception(error)
                begun.exception()  # the watchers may be gone
            self._end(begun, [])

    def _end(self, begun: asyncio.Future[list[Change]], changes: list[Change]) -> None:
        if self._round is begun:
            self._round = None
            if not self._waiting and self._link is not None:
                self._link.drop()
                self._link = None
        if not begun.done():
            begun.set_result(changes)


class ChangeFeed:
    """Reads the change feed."""

    def __init__(self, context: HubContext, scope: Scope, near: NearCache | None) -> None:
        self._feed_context = context
        self._feed_near = near
        self._feed_client = context.client
        self._feed_scope = scope

    async def watch(self, pattern: str = "*", *, since: str | int | None = None) -> AsyncIterator[Change]:
        """Yield every change of the matching keys, in order, without end. One round trip for each wake-up.

        Watchers of a namespace that have read everything wait on one connection of their hub.

        Args:
            pattern: with `*` and `?`. Without `:` it is matched against the identifier in every scope of the store's
                namespace (`*`: everything); with `:` it is absolute and begins with a literal namespace.
            since: the `cursor` of the last change that was read, or a version; 0: the oldest kept change; None: now.

        Yields:
            `Change`, or `Gap` (a subclass) where changes were trimmed before they were read. If the connection is
            lost, the iterator waits and continues; no change is lost or repeated.

        Raises:
            AccessDeniedError: this actor may not read that namespace.
            InvalidError: the pattern or cursor is invalid.
            ConfigError: the server refuses this user.
            UnavailableError: the server was unreachable for the retry time; continue from the last cursor.
        """
        namespace, matches = self._feed_scope.matcher(pattern)
        space = self._feed_scope.keyspace.space(namespace)
        may_read_all = self._feed_scope.may_read_all(namespace)
        cursor = await newest_cursor(self._feed_client, space) if since is None else parse_cursor(since)
        tail = self._tail(space)
        while True:
            gap, changes = await read_changes(self._feed_client, space, cursor)
            if gap:
                yield _make_gap(space, cursor, changes)
            # Without changes everything is read: wait for the next ones.
            while changes or (changes := await tail.wait(cursor)):
                for change in changes:
                    cursor = change.cursor
                    wanted = matches(change.key) or change.operation == "clear"
                    if wanted and (may_read_all or self._feed_scope.identity.may("read", change.key)):
                        self._drop_copy(change)
                        yield change
                if len(changes) >= BATCH:
                    break
                changes = []

    def _drop_copy(self, change: Change) -> None:
        """Ensure that a read after this change does not return what was before it."""
        if self._feed_near is not None:
            self._feed_near.drop(self._feed_scope.keyspace.target(change.key).physical)

    def _tail(self, space: Space) -> ChangeTail:
        context = self._feed_context
        return context.shared(
            ChangeTail, space.namespace, lambda: ChangeTail(context.client, space, context.background)
        )

    async def cursor(self, pattern: str = "*") -> str:
        """Return the present end of the feed: `watch(since=...)` from it yields all later changes. One round trip.

        Args:
            pattern: as in `watch`; only its namespace counts.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `watch`.
        """
        namespace, _ = self._feed_scope.matcher(pattern)
        return await newest_cursor(self._feed_client, self._feed_scope.keyspace.space(namespace))

    @asynccontextmanager
    async def consumer(
        self,
        group: str,
        name: str,
        *,
        since: str | int | None = None,
        idle: float = 60.0,
        max_deliveries: int = 5,
    ) -> AsyncIterator[Consumer]:
        """Share the namespace's changes with the other consumers of a group: each change goes to one of them.

        Args:
            group: name of the group; created if it does not exist.
            name: name of this consumer, unique in the group.
            since: the start of a new group: a cursor or version; 0: the oldest kept change; None: now.
            idle: seconds after which an unacknowledged change is delivered to another consumer.
            max_deliveries: after so many deliveries without acknowledgement, a change becomes a dead letter.

        Yields:
            A `Consumer`: iterate over it, and `ack` each change when its work is done.

        Raises:
            AccessDeniedError: this actor may not write to the whole namespace.
            InvalidError, UnavailableError: as `read`.
        """
        space = self._feed_scope.home
        check_name("group", group)
        check_name("name", name)
        if not isinstance(idle, int | float) or not _SHORTEST_IDLE_S <= idle <= LONGEST_TTL_S:
            raise InvalidError("idle", idle, f"give seconds from {_SHORTEST_IDLE_S} to {LONGEST_TTL_S}")
        if check_integer("max_deliveries", max_deliveries) < 1:
            raise InvalidError("max_deliveries", max_deliveries, "give at least one")
        start = "$" if since is None else parse_cursor(since)
        split, places, dead = (
            self._feed_scope.keyspace.group_part(space.namespace, part, group) for part in (*GROUP_PARTS, "dead")
        )
        consumer = Consumer(
            self._feed_client,
            GroupScripts(self._feed_context.executor),
            GroupKeys(space.changes, split, places),
            dead,
            group=group,
            name=name,
            idle_ms=round(idle * 1000),
            max_deliveries=max_deliveries,
        )
        await consumer.join(start)
        yield consumer


def parse_cursor(since: str | int) -> str:
    """Return a cursor or version as an id of the Redis stream.

    Raises:
        InvalidError: the cursor or version is invalid.
    """
    if isinstance(since, bool) or _CURSOR.fullmatch(str(since)) is None:
        raise InvalidError("since", since, "give the cursor of a change, a version, or 0")
    version, _, sequence = str(since).partition("-")
    return f"{version}-{sequence or 0}" if version != "0" else START


def _make_gap(space: Space, cursor: str, changes: list[Change]) -> Gap:
    following = changes[0]
    return Gap(
        key=space.namespace,
        operation="gap",
        version=following.version,
        actor="",
        at=following.at,
        cursor=cursor,
    )
