"""Keep a mirror current from the log of changes, in one small round trip while nothing has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias, TypeVar

from sharedmem.clock import Clock
from sharedmem.errors import ConfigError, SharedMemoryError
from sharedmem.record_family import RecordFamily
from sharedmem.redis.client import RedisClient
from sharedmem.redis.errors import public_error
from sharedmem.redis.keys import KeySpace
from sharedmem.redis.replies import Reply, ServerError
from sharedmem.search.exact.mirror import (
    COMMANDS_EACH,
    Mirror,
    MirroredRecord,
    parse_record,
    read_commands,
    reply_pairs,
)

T = TypeVar("T")
Versions: TypeAlias = dict[str, int]
"""Ids, and the version of the last change of each."""

_PAGE = 100
_MOST_CHANGES = 1000
_FEW = 20
_LOG_SAFETY_US = 3_600_000_000
_MOST_GONE = 1000


class MirrorReplicator:
    """Keeps the mirror of one namespace as new as the server was when asked.

    What the log says is believed as long as its length agrees with what was seen of it. A log that has been pruned,
    cleared or put back is compared as a whole.

    Args:
        client: of the server.
        keyspace: spells keys.
        family: what the records are.
        namespace: whose.
        clock: by which records end; only its `monotonic` is asked, so that a wrong wall clock does no harm.
    """

    def __init__(
        self, client: RedisClient, keyspace: KeySpace, family: RecordFamily, namespace: str, clock: Clock
    ) -> None:
        self.mirror = Mirror(family)
        self.version = 0
        self._client = client
        self._keyspace = keyspace
        self._family = family
        self._namespace = namespace
        self._clock = clock
        self._log = keyspace.record_log(family.name, namespace)
        self._is_loaded = False
        self._newest = ""
        self._logged: Versions = {}
        # Ids in the log without a record, and the version from which they may be missing there.
        self._gone: Versions = {}
        self._turn = asyncio.Lock()
        self._begun = self._done = self._failed = 0
        self._failure: SharedMemoryError | None = None

    async def catch_up(self) -> int:
        """Have everything in the mirror that was on the server when this was called; the round trips it took.

        Callers who wait while another is at it share the next turn, also its failure: one that has begun may have
        looked too early.

        Raises:
            UnavailableError: the server cannot be reached.
            ConfigError: the log is none.
        """
        came = self._begun
        async with self._turn:
            if self._failure is not None and self._failed > came:
                # Each trying for itself, one after the other, many would wait for many times as long as one.
                raise self._failure
            trips = await self._take_turn() if self._done <= came else 1
            self._expire()
            return trips

    async def _take_turn(self) -> int:
        self._begun += 1
        try:
            trips = await self._translated(self._follow())
        except SharedMemoryError as error:
            self._failed, self._failure = self._begun, error
            raise
        self._done, self._failure = self._begun, None
        return trips

    async def _translated(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except ServerError as error:
            raise public_error(error, self._client.address) from error

    async def _follow(self) -> int:
        if not self._is_loaded:
            return await self._compare()
        newer, length = await self._newer()
        # One change at least is known; if it is missing, this is another log.
        if len(newer) >= _MOST_CHANGES or (self._newest and self._newest not in newer):
            return 1 + await self._compare()
        trips = 1 + await self._fetch(newer)
        self._advance(newer)
        if not self._agrees(length) or len(self._gone) > _MOST_GONE + len(self.mirror):
            trips += await self._compare()
        return trips

    async def _newer(self) -> tuple[Versions, int]:
        """(what changed since the newest change known, that one included; how long the log is)."""
        changes = ("ZRANGEBYSCORE", self._log, self.version, "+inf", "WITHSCORES", "LIMIT", 0, _MOST_CHANGES)
        newer, length = await self._client.read_many([changes, ("ZCARD", self._log)])
        assert isinstance(length, int)
        return _parse_versions(newer), length

    async def _compare(self) -> int:
        """Look at the whole log, and fetch what differs; the round trips it took."""
        listing = _parse_versions(await self._client.call_aside("ZRANGE", self._log, 0, -1, "WITHSCORES"))
        with self.mirror.guard:
            for id_ in [id_ for id_ in self._logged if id_ not in listing]:
                self._forget(id_)
        trips = await self._fetch(listing)
        self.version, self._newest = 0, ""
        self._advance(listing)
        self._is_loaded = True
        return 1 + trips

    async def _fetch(self, changes: Mapping[str, int]) -> int:
        changed = iter([(id_, version) for id_, version in changes.items() if self._logged.get(id_) != version])
        trips = 0
        while page := dict(islice(changed, _PAGE)):
            await self._fetch_page(page)
            trips += 1
        return trips

    async def _fetch_page(self, page: Versions) -> None:
        commands = [part for id_ in page for part in read_commands(self._keyspace, self._family, self._namespace, id_)]
        now_s = self._clock.monotonic()
        replies = await self._client.read_each(commands, aside=len(commands) > COMMANDS_EACH * _FEW)
        with self.mirror.guard:
            for (id_, version), (fields, lives_ms) in zip(page.items(), reply_pairs(replies), strict=True):
                self._take(id_, version, parse_record(self._family, id_, fields, lives_ms), now_s)

    def _take(self, id_: str, version: int, record: MirroredRecord | None, now_s: float) -> None:
        self._logged[id_] = version
        if record is None:
            self.mirror.drop(id_)
            self._gone[id_] = version + _LOG_SAFETY_US
        else:
            self.mirror.put(record, now_s)
            self._gone.pop(id_, None)

    def _forget(self, id_: str) -> None:
        del self._logged[id_]
        self._gone.pop(id_, None)
        self.mirror.drop(id_)

    def _expire(self) -> None:
        with self.mirror.guard:
            # Their place in the log is cleared away some time.
            self._gone.update(dict.fromkeys(self.mirror.expire(self._clock.monotonic()), 0))
            self.mirror.compact()

    def _advance(self, changes: Mapping[str, int]) -> None:
        if changes:
            self._newest, self.version = max(changes.items(), key=lambda change: change[1])

    def _agrees(self, length: int) -> bool:
        """Whether a log of this length can be the one that was followed."""
        missing = len(self._logged) - length
        if missing == 0:
            return True
        may_be_missing = sum(1 for from_version in self._gone.values() if from_version <= self.version)
        return 0 < missing <= may_be_missing


def _parse_versions(reply: Reply) -> Versions:
    return {member.decode(errors="replace"): int(float(score)) for member, score in _member_scores(reply)}


def _member_scores(reply: Reply) -> Iterator[tuple[bytes, bytes]]:
    if not isinstance(reply, list):
        raise ConfigError("log of changes", "Redis", "it should be a sorted set; another client has written there")
    for member, score in reply_pairs(reply):
        assert isinstance(member, bytes)
        assert isinstance(score, bytes)
        yield member, score
