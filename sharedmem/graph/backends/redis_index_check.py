"""Check that the index entries of a group are exactly the ones that follow from its records, and repair them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from sharedmem.errors import ConflictError
from sharedmem.graph.backends.redis_layout import (
    SEPARATOR,
    GraphKeys,
    decode_row,
    index_entries,
    make_record_id,
    parse_claim,
    parse_edge,
)
from sharedmem.graph.names import encode_group
from sharedmem.graph.records import EntityRow, IndexDiscrepancy
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.redis.replies import Argument, Command, Reply, ServerError
from sharedmem.redis.scripts.knowledge import GraphScripts
from sharedmem.redis.service_keys import decoding

_SETS = ("edges", "claims", "told")
_HASHES = ("names", "merges")
_PARTS = (*_SETS, *_HASHES)
_OF_NAME, _OF_MERGED, _BY_OWNER = "=", ">", "a"
_PAGE = 500
_RECORDS_AT_ONCE = 50
_DIGITS = 18
_SESSION_DIGITS = 16
_REGISTERED = {
    "e": ("e", 1 + _DIGITS),
    "t": ("e", _SESSION_DIGITS + 1 + _DIGITS),
    "n": ("n", 0),
    "o": ("n", 0),
    "f": ("f", 0),
    "p": ("f", _DIGITS),
    "x": ("x", 0),
}
"""By the letter of a member of the register: the kind of its record, and the prefix before that record's id."""


class _Record(NamedTuple):
    """A record that an entry names."""

    kind: str
    id: str


class _Entry(NamedTuple):
    """A member of a sorted set, or a field of a hash with its value."""

    part: str
    entry: str
    value: str = ""


class _RecordState(NamedTuple):
    """The state of a record."""

    version: int
    beside: frozenset[_Entry] | None
    """The entries that belong to it; None if there is no record."""


class IndexCheck:
    """Compares the index entries of groups with their records.

    Args:
        context: dependencies that the hub shares with its stores.
        keys: keys of the namespace.
        actor: author of the changes.
    """

    def __init__(self, context: KnowledgeContext, keys: GraphKeys, actor: bytes) -> None:
        self._client = context.client
        self._scripts = GraphScripts(context.executor)
        self._keys = keys
        self._actor = actor

    async def strays(self, group: str) -> AsyncIterator[list[IndexDiscrepancy]]:
        """See `GraphBackend.strays`. Up to five round trips for every 500 entries."""
        done: set[_Record] = set()
        for part in _PARTS:
            async for page in self._entries(group, part):
                named = {entry: _record_of(entry) for entry in page}
                held = await self._held(group, dict.fromkeys(named.values()))
                found = [_find_discrepancy(entry, record, held) for entry, record in named.items()]
                found += await self._half_named(group, named, held)
                fresh = {record: one for record, one in held.items() if record not in done}
                done |= fresh.keys()
                found += await self._missing(group, fresh)
                wrong = [stray for stray in found if stray is not None]
                confirmed = await self._confirmed(group, wrong) if wrong else []
                if confirmed:
                    yield confirmed

    async def mend(self, group: str, strays: Sequence[IndexDiscrepancy]) -> None:
        """See `GraphBackend.mend`. One round trip for every 50 records."""
        by_record: dict[tuple[str, str, int], list[IndexDiscrepancy]] = {}
        for stray in strays:
            if not _lacks_entity(stray):
                by_record.setdefault((stray.kind, stray.id, stray.version), []).append(stray)
        records = list(by_record.items())
        for first in range(0, len(records), _RECORDS_AT_ONCE):
            some = records[first : first + _RECORDS_AT_ONCE]
            keys = [self._keys.record(make_record_id(group, kind, id_)) for (kind, id_, _), _ in some]
            try:
                await self._scripts.graph_mend(
                    self._keys.space,
                    self._actor,
                    keys=[
                        *keys,
                        self._keys.groups,
                        *self._keys.parts(group, "edges", "claims", *_HASHES, "changed", "told"),
                    ],
                    group=encode_group(group),
                    words=[word for (*_, version), own in some for word in (version, *_mend_arguments(own))],
                )
            except ServerError as error:
                raise self._keys.public_error(error, group, self._client.address) from error

    async def _entries(self, group: str, part: str) -> AsyncIterator[list[_Entry]]:
        key = self._keys.part(group, part)
        if part in _SETS:
            low = b"-"
            while True:
                (reply,) = await self._read(group, [("ZRANGEBYLEX", key, low, "+", "LIMIT", 0, _PAGE)])
                members = cast("list[bytes]", reply)
                yield [_Entry(part, member.decode(errors="replace")) for member in members]
                if len(members) < _PAGE:
                    return
                low = b"(" + members[-1]
        cursor = b"0"
        while True:
            (reply,) = await self._read(group, [("HSCAN", key, cursor, "COUNT", _PAGE)])
            cursor, pairs = cast("tuple[bytes, list[bytes]]", reply)
            texts = [text.decode(errors="replace") for text in pairs]
            yield [_Entry(part, name, value) for name, value in zip(texts[::2], texts[1::2], strict=True)]
            if cursor == b"0":
                return

    async def _held(self, group: str, records: Iterable[_Record]) -> dict[_Record, _RecordState]:
        asked = list(records)
        looks: list[Command] = [
            ("HMGET", self._keys.record(make_record_id(group, *one)), "version", "body") for one in asked
        ]
        replies = cast("list[list[bytes | None]]", await self._read(group, looks))
        held = {}
        for record, (version, body) in zip(asked, replies, strict=True):
            with decoding(self._keys.record(make_record_id(group, *record))):
                held[record] = _RecordState(_version(version), _expected_entries(record, body) if body else None)
        return held

    async def _half_named(
        self, group: str, named: Mapping[_Entry, _Record], held: Mapping[_Record, _RecordState]
    ) -> list[IndexDiscrepancy]:
        """Return names that only the register of the group or only the names contain. One round trip."""
        other = {entry: half for entry, record in named.items() if (half := _other_half(entry, record)) is not None}
        replies = await self._read(group, [self._look(group, half) for half in other.values()])
        found = []
        for (entry, half), reply in zip(other.items(), replies, strict=True):
            record = named[entry]
            if reply is None:
                found.append(IndexDiscrepancy(*half, *record, held[record].version, is_there=False))
            elif half.part == "names" and reply != half.value.encode():
                # Another entity has that name.
                found.append(IndexDiscrepancy(*entry, *record, held[record].version, is_there=True))
        return found

    async def _missing(self, group: str, held: Mapping[_Record, _RecordState]) -> list[IndexDiscrepancy]:
        """Return the entries that some records lack. One round trip."""
        wanted = [(record, one.version, entry) for record, one in held.items() for entry in one.beside or ()]
        replies = await self._read(group, [self._look(group, entry) for *_, entry in wanted])
        return [
            IndexDiscrepancy(*entry, *record, version, is_there=False)
            for (record, version, entry), reply in zip(wanted, replies, strict=True)
            if not _is_present(entry, reply)
        ]

    async def _confirmed(self, group: str, strays: Sequence[IndexDiscrepancy]) -> list[IndexDiscrepancy]:
        """Return the strays that are wrong while their records are unchanged. One round trip.

        Raises:
            ConflictError: the group is being deleted, its index first.
        """
        keys = [self._keys.record(make_record_id(group, stray.kind, stray.id)) for stray in strays]
        versions: list[Command] = [("HGET", key, "version") for key in keys]
        looks = [self._look(group, _Entry(stray.part, stray.entry, stray.value)) for stray in strays]
        state: Command = ("HGET", self._keys.groups, encode_group(group))
        replies = await self._read(group, [state, *versions, *looks, *versions, state])
        count = len(strays)
        before, there, after = replies[1 : count + 1], replies[count + 1 : 2 * count + 1], replies[2 * count + 1 : -1]
        if any(isinstance(one, bytes) and one.startswith(b"closed") for one in (replies[0], replies[-1])):
            raise ConflictError(f"group {group!r} is being deleted; there is nothing left to check")
        return [
            stray
            for stray, one, reply, other in zip(strays, before, there, after, strict=True)
            if one == other and _version(one) == stray.version and _is_present(_entry(stray), reply) == stray.is_there
        ]

    def _look(self, group: str, entry: _Entry) -> Command:
        command = "ZSCORE" if entry.part in _SETS else "HGET"
        return (command, self._keys.part(group, entry.part), entry.entry)

    async def _read(self, group: str, commands: Sequence[Command]) -> list[Reply]:
        if not commands:
            return []
        try:
            return await self._client.read_many(commands)
        except ServerError as error:
            raise self._keys.public_error(error, group, self._client.address) from error


def _record_of(entry: _Entry) -> _Record:
    """Return the record of an entry; without an id if the entry cannot be parsed."""
    try:
        return _named_by(*entry)
    except (ValueError, LookupError, TypeError):
        return _Record("e", "")


def _named_by(part: str, entry: str, value: str) -> _Record:
    if part == "edges":
        return _Record("f", parse_edge(entry.encode()).fact)
    if part == "claims":
        claim = entry.split(SEPARATOR)[2].rpartition("#")[0] if entry[0] == "b" else parse_claim(entry.encode()).episode
        return _Record("e", claim)
    if part == "names":
        return _Record("n", value if entry[0] == _OF_NAME else entry[1:])
    if part == "merges":
        return _Record("n", entry)
    letter, rest = entry[0], entry[1:]
    if letter == _BY_OWNER:
        return _Record("n", rest.partition(SEPARATOR)[0])
    kind, skipped = _REGISTERED[letter]
    return _Record(kind, rest[skipped:])


def _expected_entries(record: _Record, body: bytes) -> frozenset[_Entry]:
    """Return the entries of a record, as its body defines them."""
    if record.kind == "x":
        return frozenset((_Entry("told", f"x{record.id}"),))
    row = decode_row(record.kind, body, version=0)
    found = index_entries(row)
    sets = zip(_SETS, (found.edges, found.claims, found.told), strict=True)
    every = {_Entry(part, member) for part, members in sets for member in members}
    every |= {_Entry("names", f"{_OF_MERGED}{id_}", into) for id_, into in found.into}
    if isinstance(row, EntityRow):
        every |= {_Entry("names", f"{_OF_NAME}{name}", row.id) for name in row.names}
        every |= {_Entry("merges", row.id, row.merge)} if row.merge else set()
    return frozenset(every)


def _find_discrepancy(entry: _Entry, record: _Record, held: Mapping[_Record, _RecordState]) -> IndexDiscrepancy | None:
    """Return an entry as a stray, if it does not follow from its record."""
    version, beside = held[record]
    if beside is not None and (entry in beside or _is_of_name(entry)):
        return None
    if beside is None and entry.part == "told" and _is_of_name(entry):
        # The name itself is compared in `_half_named`.
        return None
    return IndexDiscrepancy(*entry, *record, version, is_there=True)


def _is_of_name(entry: _Entry) -> bool:
    """Return whether the entry is of a name; an entity may have more names than its record has room for."""
    return (entry.part, entry.entry[:1]) in {("told", _BY_OWNER), ("names", _OF_NAME)}


def _other_half(entry: _Entry, record: _Record) -> _Entry | None:
    """Return the entry in the names for a name of the register, and in the register for one of the names."""
    if not _is_of_name(entry):
        return None
    if entry.part == "names":
        return _Entry("told", f"{_BY_OWNER}{record.id}{SEPARATOR}{entry.entry[1:]}")
    return _Entry("names", f"{_OF_NAME}{entry.entry.partition(SEPARATOR)[2]}", record.id)


def _lacks_entity(stray: IndexDiscrepancy) -> bool:
    """Return whether a name leads to an entity without a record: then the record is missing, the name is not wrong."""
    return stray.part == "names" and stray.entry.startswith(_OF_NAME) and stray.is_there


def _is_present(entry: _Entry, reply: Reply) -> bool:
    """Return whether an entry exists; a name counts as existing also if another entity has it."""
    if entry.part in _SETS or _is_of_name(entry):
        return reply is not None
    return reply == entry.value.encode()


def _entry(stray: IndexDiscrepancy) -> _Entry:
    return _Entry(stray.part, stray.entry, stray.value)


def _version(reply: Reply) -> int:
    return int(reply) if isinstance(reply, bytes) and reply.isdigit() else 0


def _mend_arguments(strays: Sequence[IndexDiscrepancy]) -> Iterator[Argument]:
    """Yield the arguments of `lua/graph_mend.lua` for one record after its version."""
    for part in _PARTS:
        own = [stray for stray in strays if stray.part == part]
        extra = [stray.entry for stray in own if stray.is_there]
        missing = [stray for stray in own if not stray.is_there]
        pairs: list[Argument] = []
        for stray in missing:
            pairs += (0, stray.entry) if part in _SETS else (stray.entry, stray.value)
        words: list[Argument] = [len(extra), *extra, len(pairs), *pairs]
        yield from words
    lines = {
        stray.entry[1:].split(SEPARATOR)[0] for stray in strays if stray.part == "claims" and stray.entry[0] == "l"
    }
    yield len(lines)
    yield from sorted(lines)
