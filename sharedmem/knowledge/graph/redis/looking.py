"""Looking at what a group holds, all at one moment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar, cast

from sharedmem.knowledge.graph.records import EntityRow, EpisodeRow, FactRow, Row, Seen, Wanted
from sharedmem.knowledge.graph.redis.ground import RedisGround
from sharedmem.knowledge.graph.redis.rows import claim_of, decode, record_named
from sharedmem.wire.graphing import LookKeys
from sharedmem.wire.replies import Reply, ServerError
from sharedmem.wire.service_keys import decoding

_VERSION = re.compile(rb"\d{16}")
R = TypeVar("R", EpisodeRow, EntityRow, FactRow)


class Looking(RedisGround):
    """Finds what is there of names, lines and records."""

    async def look(self, group: str, wanted: Wanted) -> Seen:
        """See `GraphBackend.look`. One round trip."""
        asked = (("e", wanted.episodes), ("n", wanted.entities), ("f", wanted.facts))
        named = [record_named(group, kind, id_) for kind, ids in asked for id_ in ids]
        keys = LookKeys(self._groups, *self._parts(group, "changed", "names", "claims", "told"))
        try:
            found = await self._graphing.graph_look(
                keys,
                records=[self._record(name) for name in named],
                names_count=len(wanted.names),
                lines_count=len(wanted.lines),
                # The durable tier takes a record whole; only there a vector has to come along.
                has_vector=int(self._minds.tier is not None),
                asked=[*wanted.names, *wanted.lines, *wanted.entities],
            )
        except ServerError as error:
            raise self._explained(error, group) from error
        return _seen(wanted, found, keys, zip(map(self._record, named), cast("list[Reply]", found[4]), strict=False))


def _seen(wanted: Wanted, found: Sequence[Reply], keys: LookKeys, records: Iterator[tuple[bytes, Reply]]) -> Seen:
    version, owners, lines, into = (cast("list[Reply]", part) for part in found[:4])
    with decoding(keys.changed):
        seen = Seen(int(_text(cast("Reply", version))))
    with decoding(keys.names):
        for name, (own, end) in zip(wanted.names, _pairs(owners), strict=True):
            if own:
                seen.owners[name], seen.names[name] = own, end
        seen.into = dict(_pairs(into))
    with decoding(keys.claims):
        for line, members in zip(wanted.lines, lines, strict=True):
            seen.claims[line] = tuple(claim_of(cast("bytes", member)) for member in cast("list[Reply]", members))
    replies = iter(records)
    seen.episodes = dict(_rows("e", wanted.episodes, replies, EpisodeRow))
    seen.entities = dict(_rows("n", wanted.entities, replies, EntityRow))
    seen.facts = dict(_rows("f", wanted.facts, replies, FactRow))
    return seen


def _rows(
    kind: str, ids: Sequence[str], replies: Iterator[tuple[bytes, Reply]], type_: type[R]
) -> Iterator[tuple[str, R]]:
    for id_, (key, reply) in zip(ids, replies, strict=False):
        with decoding(key):
            body, version, vector = cast("list[bytes]", reply)
            row: Row | None = decode(kind, body, version=_version(version), vector=vector) if body else None
            assert row is None or isinstance(row, type_)
        if row is not None:
            yield id_, row


def _version(spelled: bytes) -> int:
    """The number of a version; one that is spelled otherwise would never be the one that a step expects."""
    if not _VERSION.fullmatch(spelled):
        raise ValueError(f"version {spelled!r}")
    return int(spelled)


def _pairs(reply: Sequence[Reply]) -> Iterator[tuple[str, str]]:
    return ((_text(one), _text(other)) for one, other in zip(reply[::2], reply[1::2], strict=True))


def _text(reply: Reply) -> str:
    assert isinstance(reply, bytes)
    return reply.decode()
