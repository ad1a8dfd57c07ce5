"""How the records of graphs lie in Redis, made again of what the durable tier has of them.

For the tier a record is one key, `<namespace>:$graph:<group>/<kind>/<id>`, with one document: the JSON of its row, from
which all follows that lies beside it (`redis.rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from sharedmem.clock import Clock
from sharedmem.errors import UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.redis.client import RedisClient
from sharedmem.redis.durability import RedisPart
from sharedmem.redis.keys import KeySpace, Target
from sharedmem.redis.replies import Argument, Command, Reply
from sharedmem.redis.scripts.durable import RecordRestoreScripts, RestoreLease

if TYPE_CHECKING:
    # Texts are taken apart by what takes a while to load; a hub opens without it.
    from sharedmem.graph.backends.redis.durable_records import DurableGraphRecord, StoredGraphRecord

_GRAPH = "graph"
_COMMON = ("log", "place", "groups")
_OF_GROUP = ("edges", "claims", "names", "merges", "changed", "told")
_OUTDATED, _CHANGED = "overtaken", "changed"
_MOST_TRIES = 20


class GraphRestorer:
    """Knows how the records of graphs lie in Redis (`wire.tier.Imager`, `durable.gathering.RecordReader`).

    Args:
        keyspace: how keys are spelled.
        line: the way to Redis.
        clock: by which a fact counts as past.
    """

    def __init__(self, keyspace: KeySpace, line: RedisClient, clock: Clock) -> None:
        self._keyspace = keyspace
        self._client = line
        self._clock = clock

    # -- one record

    def presence(self, target: Target) -> bytes:
        """Its hash."""
        return self._keyspace.presence(target)

    def parts(self, target: Target, records: Sequence[DurableRecord]) -> list[RedisPart]:
        """The fields of its hash that stay as they are, however time goes by.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """
        from sharedmem.graph.backends.redis.durable_records import stable_hash_fields  # noqa: PLC0415  # see above

        rows: list[tuple[Argument, ...]] = list(
            stable_hash_fields(self.remembered(records[0]), records[0].namespace).items()
        )
        return [RedisPart(self.presence(target), "HSET", rows, has_more=True)] if rows else []

    def besides(self, target: Target) -> list[Command]:  # noqa: ARG002  # the script does it all in one step
        """Nothing."""
        return []

    # -- all records

    @property
    def scope(self) -> str:
        """Of the keys of graphs."""
        return f"${_GRAPH}"

    def anew(self, namespace: str) -> list[bytes]:  # noqa: ARG002  # what is counted here lies in registers
        """Nothing."""
        return []

    def remembered(self, record: DurableRecord) -> DurableGraphRecord:
        """What a document says.

        Raises:
            ValueError, LookupError, TypeError: it cannot be read.
        """
        from sharedmem.graph.backends.redis.durable_records import parse_durable_record  # noqa: PLC0415  # see above

        return parse_durable_record(record)

    async def restore(
        self, bringing: RecordRestoreScripts, turn: RestoreLease, namespace: str, records: Sequence[DurableGraphRecord]
    ) -> int | None:
        """Bring some back; how many were missing, None when somebody has taken over. Two round trips a group."""
        restored = 0
        for group, some in groupby(records, key=attrgetter("group")):
            count = await self._restore(bringing, turn, (namespace, group), list(some))
            if count is None:
                return None
            restored += count
        return restored

    async def _restore(
        self,
        bringing: RecordRestoreScripts,
        turn: RestoreLease,
        place: tuple[str, str],
        records: Sequence[DurableGraphRecord],
    ) -> int | None:
        from sharedmem.graph.backends.redis.durable_records import is_newer, restore_arguments  # noqa: PLC0415  # see above
        from sharedmem.graph.records import to_stamp  # noqa: PLC0415

        namespace, group = place
        for _ in range(_MOST_TRIES):
            held = await self._held(namespace, records)
            pairs = [(one, here) for one, here in zip(records, held, strict=True) if is_newer(one, here)]
            reply = await bringing.graph_restore(
                self._keyspace.space(namespace),
                self._keyspace.kept(namespace),
                keys=[*(self._record(namespace, one) for one, _ in pairs), *self._shared(namespace, group)],
                group=group,
                token=turn.token,
                lease_ms=turn.lease_ms,
                words=restore_arguments(pairs, namespace, now=to_stamp("now", self._clock.now())),
            )
            if reply != _CHANGED:
                return None if reply == _OUTDATED else int(reply.split()[1])
        raise UnavailableError(f"graphs of {namespace!r}", "they change as often as they are brought back; try again")

    async def _held(self, namespace: str, records: Sequence[DurableGraphRecord]) -> list[StoredGraphRecord]:
        from sharedmem.graph.backends.redis.durable_records import StoredGraphRecord  # noqa: PLC0415  # see above

        looks: list[Command] = [("HMGET", self._record(namespace, one), "version", "body") for one in records]
        return [StoredGraphRecord(*_version_and_body(reply)) for reply in await self._client.read_many(looks)]

    def _record(self, namespace: str, one: DurableGraphRecord) -> bytes:
        return self._keyspace.record(_GRAPH, namespace, one.named)

    def _shared(self, namespace: str, group: str) -> list[bytes]:
        """What the records of a group lie among, in the order in which the script takes it."""
        common = [self._keyspace.record_part(_GRAPH, namespace, part) for part in _COMMON]
        return common + [self._keyspace.record_item(_GRAPH, namespace, part, group) for part in _OF_GROUP]


def _version_and_body(reply: Reply) -> tuple[int, bytes]:
    assert isinstance(reply, list)
    version, body = reply
    return int(version) if isinstance(version, bytes) else 0, body if isinstance(body, bytes) else b""
