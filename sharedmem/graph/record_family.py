"""The record family of graphs: its index fields, and how Redis restores graph records from the durable store.

A record's id in its namespace is `<group>/<kind>/<id>`; its document is the JSON of its row, from which the hash and
the group's indexes follow (`graph.backends.redis_layout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from sharedmem.errors import UnavailableError
from sharedmem.models import DurableRecord
from sharedmem.record_family import DocumentFormat, RecordFamily, RestoreRun
from sharedmem.redis.replies import Argument, Command, Reply
from sharedmem.redis.scripts.knowledge import GRAPH_FAMILY

if TYPE_CHECKING:
    # Loading this module takes a while; a hub opens without it.
    from sharedmem.graph.backends.redis_layout import DurableGraphRecord, StoredGraphRecord

TAGS = ("ns", "shelf", "session")
NUMBERS = ("at",)
"""`at`: milliseconds since 1970 of the start of a fact, or of the time of an episode."""
_COMMON_PARTS = ("log", "place", "groups")
_GROUP_PARTS = ("edges", "claims", "names", "merges", "changed", "told")
_LEASE_LOST, _CHANGED = "overtaken", "changed"
_MOST_TRIES = 20


def _parse(record: DurableRecord) -> DurableGraphRecord:
    from sharedmem.graph.backends.redis_layout import parse_durable_record  # noqa: PLC0415  # see above

    return parse_durable_record(record)


def _hash_fields(record: DurableGraphRecord, namespace: str) -> Sequence[Argument]:
    from sharedmem.graph.backends.redis_layout import stable_hash_fields  # noqa: PLC0415  # see above

    return [part for pair in stable_hash_fields(record, namespace).items() for part in pair]


async def _restore(run: RestoreRun, records: Sequence[DurableGraphRecord]) -> int | None:
    """Restore records. Two round trips for each group."""
    restored = 0
    for group, some in groupby(records, key=attrgetter("group")):
        count = await _restore_group(run, group, list(some))
        if count is None:
            return None
        restored += count
    return restored


async def _restore_group(run: RestoreRun, group: str, records: Sequence[DurableGraphRecord]) -> int | None:
    from sharedmem.graph.backends.redis_layout import is_newer, restore_arguments  # noqa: PLC0415  # see above
    from sharedmem.graph.records import to_stamp  # noqa: PLC0415  # likewise

    keyspace, namespace = run.context.keyspace, run.namespace
    for _ in range(_MOST_TRIES):
        stored = await _read_stored(run, records)
        pairs = [(one, here) for one, here in zip(records, stored, strict=True) if is_newer(one, here)]
        keys = [keyspace.record(GRAPH_FAMILY, namespace, one.named) for one, _ in pairs]
        # In the order of the script's arguments.
        keys += [keyspace.record_part(GRAPH_FAMILY, namespace, part) for part in _COMMON_PARTS]
        keys += [keyspace.record_item(GRAPH_FAMILY, namespace, part, group) for part in _GROUP_PARTS]
        reply = await run.scripts.graph_restore(
            keyspace.space(namespace),
            keyspace.kept(namespace),
            keys=keys,
            group=group,
            lease=run.lease,
            words=restore_arguments(pairs, namespace, now=to_stamp("now", run.context.clock.now())),
        )
        if reply != _CHANGED:
            return None if reply == _LEASE_LOST else int(reply.split()[1])
    raise UnavailableError(f"graphs of {namespace!r}", "they keep changing during the restore; try again")


async def _read_stored(run: RestoreRun, records: Sequence[DurableGraphRecord]) -> list[StoredGraphRecord]:
    """Read the stored state of some records from Redis."""
    from sharedmem.graph.backends.redis_layout import StoredGraphRecord  # noqa: PLC0415  # see above

    keys = (run.context.keyspace.record(GRAPH_FAMILY, run.namespace, one.named) for one in records)
    commands: list[Command] = [("HMGET", key, "version", "body") for key in keys]
    return [StoredGraphRecord(*_version_and_body(reply)) for reply in await run.context.client.read_many(commands)]


def _version_and_body(reply: Reply) -> tuple[int, bytes]:
    assert isinstance(reply, list)
    version, body = reply
    return int(version) if isinstance(version, bytes) else 0, body if isinstance(body, bytes) else b""


GRAPH_RECORDS = RecordFamily(
    GRAPH_FAMILY,
    TAGS,
    NUMBERS,
    documents=DocumentFormat(parse=_parse, hash_fields=_hash_fields, restore=_restore),
)
