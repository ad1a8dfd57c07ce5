"""Inspection: which locks, semaphores, barriers and rate limits of a namespace are in use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast, get_args

from sharedmem.coordination.locks import parse_holders, parse_server_time
from sharedmem.coordination.names import NameAccess
from sharedmem.errors import InvalidError
from sharedmem.models.coordination import CoordinationEntry, CoordinationKind, CoordinationPage
from sharedmem.redis.change_stream import as_list
from sharedmem.redis.keys import Target, plain_name
from sharedmem.redis.name_index import IndexedName
from sharedmem.redis.replies import Reply
from sharedmem.redis.scripts.coordination import RateLimitScripts
from sharedmem.redis.service_keys import decoding

_MOST_SHOWN = 1000
_KINDS: tuple[CoordinationKind, ...] = get_args(CoordinationKind)


class CoordinationNames:
    """Which names of locks, barriers and rate limits are in use."""

    def __init__(self, names: NameAccess) -> None:
        self._inspected_names = names

    async def coordination_names(
        self, kind: CoordinationKind | None = None, *, limit: int = 200, cursor: str | None = None
    ) -> CoordinationPage:
        """Return the locks, leaders, semaphores, read/write locks, barriers and rate limits that are in use.

        Sorted by kind and name. Two round trips, one for each rate limit, and one if names are free by now. In data
        that only earlier versions have written, names are looked for once with SCAN.

        Args:
            kind: `lock`, `leader`, `semaphore`, `rwlock`, `barrier` or `limit`; None: all of them.
            limit: most names to look at, 1 to 1,000. A page may have fewer, and none: free ones are left out.
            cursor: the one of the page before; None: from the beginning.

        Raises:
            InvalidError: an argument is invalid.
            AccessDeniedError: names were never looked for, and this Redis user may not list keys.
            UnavailableError: the server cannot be reached.
            CorruptionError: another client has written to a name, or to the index of names.
        """
        if kind is not None and kind not in _KINDS:
            raise InvalidError("kind", kind, f"use one of {', '.join(_KINDS)}, or leave it out")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST_SHOWN:
            raise InvalidError("limit", limit, f"give a whole number from 1 to {_MOST_SHOWN}")
        names = self._inspected_names
        after = None if cursor is None else _parse_cursor(cursor, names.scope.home.namespace)
        found = await names.index.page(_KINDS if kind is None else (kind,), after=after, limit=limit + 1)
        some = found[:limit]
        entries = await self._looked_at(some)
        await names.drop_names([one for one, entry in zip(some, entries, strict=True) if entry is None])
        following = f"{some[-1].kind} {names.scope.home.namespace}:{some[-1].name}" if len(found) > limit else None
        return CoordinationPage(entries=[entry for entry in entries if entry is not None], cursor=following)

    async def _looked_at(self, found: Sequence[IndexedName]) -> list[CoordinationEntry | None]:
        """Return what is known of each name; None for one that is free by now."""
        if not found:
            return []
        names = self._inspected_names
        kinds = [cast("CoordinationKind", one.kind) for one in found]
        targets = [names.scope.keyspace.target(f"{names.scope.home.namespace}:{one.name}") for one in found]
        looks: list[tuple[str | bytes | int, ...]] = [("TIME",)]
        for kind, target in zip(kinds, targets, strict=True):
            if kind != "limit":
                looks.append(("ZRANGE", names.part(target, kind), 0, -1, "WITHSCORES"))
                looks.append(("ZCARD", names.part(target, f"{kind}.waiters")))
        now, *replies = await names.explained(targets[0], names.context.client.read_many(looks))
        asked_at, held = parse_server_time(as_list(now)), iter(replies)

        async def look(
            kind: CoordinationKind, target: Target, reply: Reply, waiting: Reply
        ) -> CoordinationEntry | None:
            name = plain_name(target.key, names.scope.identity.namespace)
            if kind == "limit":
                return await self._limit(name, target)
            with decoding(names.part(target, kind)):
                if kind == "barrier":
                    return _barrier(name, as_list(reply), asked_at)
                holders, count = parse_holders(kind, as_list(reply), asked_at), cast("int", waiting)
            return CoordinationEntry(kind=kind, name=name, holders=holders, waiting=count) if holders or count else None

        calls = [
            look(kind, target, *((None, None) if kind == "limit" else (next(held), next(held))))
            for kind, target in zip(kinds, targets, strict=True)
        ]
        return list(await asyncio.gather(*calls))

    async def _limit(self, name: str, target: Target) -> CoordinationEntry | None:
        names = self._inspected_names
        scripts = RateLimitScripts(names.context.executor)
        usage = await names.explained(target, scripts.limit_usage(names.part(target, "limit")))
        if usage is None:
            return None
        algorithm, used, left_ms = usage
        return CoordinationEntry(kind="limit", name=name, used=used, algorithm=algorithm, remaining=left_ms / 1000)


def _barrier(name: str, pairs: Sequence[object], now: int) -> CoordinationEntry | None:
    """Return a barrier from its arrivals `<version> <parties> <waiter>` and the ends of their leases in turn."""
    arrived = cast("list[tuple[bytes, bytes]]", list(zip(pairs[::2], pairs[1::2], strict=True)))
    present = [arrival for arrival, ends in arrived if float(ends) > now]
    if not present:
        return None
    return CoordinationEntry(kind="barrier", name=name, waiting=len(present), parties=int(present[0].split()[1]))


def _parse_cursor(cursor: str, namespace: str) -> IndexedName:
    kind, _, key = cursor.partition(" ")
    name = key.removeprefix(f"{namespace}:")
    if kind not in _KINDS or not key or name == key:
        raise InvalidError("cursor", cursor, "give that of the page before, or none to begin")
    return IndexedName(kind, name)
