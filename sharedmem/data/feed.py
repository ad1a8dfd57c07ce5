"""The change feed: everything that happens in a namespace, in order, from any point still kept."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sharedmem.data.consumers import Consumer
from sharedmem.data.lifetimes import LONGEST_TTL_S
from sharedmem.data.structure import Structure, check_whole
from sharedmem.errors import InvalidError
from sharedmem.models import Change, Gap
from sharedmem.telemetry import get_logger
from sharedmem.wire.changes import START, newest_cursor, read_changes
from sharedmem.wire.faults import translate
from sharedmem.wire.keys import Space, check_name
from sharedmem.wire.replies import LostError, ServerError

# An idle reader asks again this often, so that a connection that died in silence is noticed.
_WAIT_S = 2.0
_SHORTEST_IDLE_S = 0.001
# Stream ids are pairs of unsigned 64-bit numbers.
_CURSOR = re.compile(r"[0-9]{1,19}(-[0-9]{1,19})?")
_logger = get_logger("feed")


class Feed(Structure):
    """Follows the change stream."""

    async def watch(self, pattern: str = "*", *, since: str | int | None = None) -> AsyncIterator[Change]:
        """Yield every change of the keys that match, in order, for ever; two round trips a wake-up.

        Args:
            pattern: with `*` and `?`. Without `:` it is matched against the identifier in every scope of the own
                namespace (`*`: everything); with `:` it is absolute and begins with a literal namespace.
            since: the `cursor` of the last change seen, or a version; 0 from the oldest kept; None from now on.

        Yields:
            `Change`, and `Gap` (a kind of it) where changes were trimmed before they could be read. A lost
            connection is waited out: nothing is lost or doubled by it.

        Raises:
            AccessDeniedError: this actor may not read that namespace.
            InvalidError: the pattern or cursor is none.
            ConfigError: the server refuses this user.
            UnavailableError: the server stayed away for longer than the retry time; go on from the last cursor.
        """
        namespace, matches = self._scope.matcher(pattern)
        space = self._scope.keyspace.space(namespace)
        may_read_all = self._scope.may_read_all(namespace)
        cursor = await newest_cursor(self._line, space) if since is None else checked_cursor(since)
        while True:
            gap, changes = await read_changes(self._line, space, cursor)
            if gap:
                yield _gap(space, cursor, changes)
            for change in changes:
                cursor = change.cursor
                wanted = matches(change.key) or change.operation == "clear"
                if wanted and (may_read_all or self._scope.identity.may("read", change.key)):
                    yield change
            if not changes:
                await self._wait(space, cursor)

    async def cursor(self, pattern: str = "*") -> str:
        """Where the feed stands now: `watch` with it as `since` misses nothing from here on. One round trip.

        Args:
            pattern: as `watch` takes it; it names the namespace.

        Raises:
            AccessDeniedError, InvalidError, UnavailableError: as `watch`.
        """
        namespace, _ = self._scope.matcher(pattern)
        return await newest_cursor(self._line, self._scope.keyspace.space(namespace))

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
            group: who shares the work; made when it does not exist.
            name: this consumer, unique in the group.
            since: where a new group begins: a cursor or version, 0 for the oldest kept, None for now.
            idle: seconds after which a change that a consumer got but never acknowledged goes to another.
            max_deliveries: a change delivered so often without acknowledgement becomes a dead letter.

        Yields:
            A `Consumer`: iterate over it, and `ack` each change when its work is done.

        Raises:
            AccessDeniedError: this actor may not write to the whole namespace.
            InvalidError, UnavailableError: as `read`.
        """
        space = self._scope.home
        check_name("group", group)
        check_name("name", name)
        if not isinstance(idle, int | float) or not _SHORTEST_IDLE_S <= idle <= LONGEST_TTL_S:
            raise InvalidError("idle", idle, f"give seconds from {_SHORTEST_IDLE_S} to {LONGEST_TTL_S}")
        if check_whole("max_deliveries", max_deliveries) < 1:
            raise InvalidError("max_deliveries", max_deliveries, "give at least one")
        start = "$" if since is None else checked_cursor(since)
        dead = self._scope.keyspace.service(space.namespace, f"dead:{group}")
        consumer = Consumer(
            self._line, space, dead, group=group, name=name, idle_ms=round(idle * 1000), max_deliveries=max_deliveries
        )
        await consumer.join(start)
        yield consumer

    async def _wait(self, space: Space, cursor: str) -> None:
        """Return when there may be news."""
        wait_ms = int(_WAIT_S * 1000)
        try:
            await self._line.block(
                "XREAD", "BLOCK", wait_ms, "COUNT", 1, "STREAMS", space.changes, cursor, wait_s=_WAIT_S
            )
        except LostError as error:
            # The next read finds out whether the server is back.
            _logger.warning("watching %s: %s", space.namespace, error)
        except ServerError as error:
            raise translate(error, self._line.address) from error


def checked_cursor(since: str | int) -> str:
    """A point of the feed as its stream spells it.

    Raises:
        InvalidError: it is none.
    """
    if isinstance(since, bool) or _CURSOR.fullmatch(str(since)) is None:
        raise InvalidError("since", since, "give the cursor of a change, a version, or 0")
    version, _, sequence = str(since).partition("-")
    return f"{version}-{sequence or 0}" if version != "0" else START


def _gap(space: Space, cursor: str, changes: list[Change]) -> Gap:
    following = changes[0]
    return Gap(
        key=space.namespace,
        operation="gap",
        version=following.version,
        actor="",
        at=following.at,
        cursor=cursor,
    )
