"""The documents in the entries of an outbox.

An entry has a field for each document. The field's name is `<type> <kind> <version> <stamp> <floor> <size> <expires>
<created> <codec> <actor> <key>`, for an element with its name on a second line; its value is the body, as it is in
Redis (`lua/include/kept.lua` writes it).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from sharedmem.durable.conversation_documents import entry_to_text
from sharedmem.durable.json_codec import member_to_text, to_text
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord
from sharedmem.models.record import of_checked
from sharedmem.redis.codec import JSON
from sharedmem.redis.keys import check_durable_key

_KINDS = {b"s": "session", b"k": "knowledge", b"l": "log"}
_NAME_WORDS = 11
_STEP = 250
"""Documents that are parsed without a pause: they take a few milliseconds."""
_VALUE = b"value"
_GONE, _MEMBER, _ENTRY = b"gone", b"member", b"entry"
# A string of another client, without a header.
_TEXT = b"text"


class OutboxDocument(NamedTuple):
    """One field of an entry: a document, or the reason why it is invalid."""

    record: DurableRecord | None
    """Of a superseded document, the newest one of its place."""
    problem: str = ""
    is_superseded: bool = False
    """Whether a newer document of the same place is in the same batch: its body was not read."""


def parse_documents(fields: Sequence[bytes], namespace: str) -> list[OutboxDocument]:
    """Parse an entry field by field; an invalid field gives a reason instead of an error.

    Args:
        fields: names and bodies in turn.
        namespace: namespace of the outbox; documents of other namespaces are invalid.
    """
    return [_parse_field(fields[i], fields[i + 1], namespace) for i in range(0, len(fields) - 1, 2)]


class OutboxBatch:
    """The fields of some entries: of each document, only the newest version is parsed.

    Args:
        entries: the fields of each, names and bodies in turn.
        namespace: namespace of the outbox.
    """

    def __init__(self, entries: Iterable[Sequence[bytes]], namespace: str) -> None:
        self._namespace = namespace
        # By place: stamp and field of the newest document, and the highest floor.
        self._newest: dict[bytes, _Newest] = {}
        self._fields = [
            [(name, body, self._add(name, body)) for name, body in zip(fields[::2], fields[1::2], strict=False)]
            for fields in entries
        ]
        self._parsed: dict[bytes, OutboxDocument] = {}

    def _add(self, name: bytes, body: bytes) -> _Sketch | None:
        sketch = _sketch(name)
        if sketch is not None:
            place, stamp, floor = sketch
            other = self._newest.get(place)
            if other is None or stamp >= other[0]:
                self._newest[place] = stamp, name, body, max(floor, other[3]) if other else floor
            elif floor > other[3]:
                self._newest[place] = *other[:3], floor
        return sketch

    def parse(self) -> Iterator[None]:
        """Parse the newest documents, a few hundred at each step."""
        for number, (place, (_, name, body, floor)) in enumerate(self._newest.items(), 1):
            document = _parse_field(name, body, self._namespace)
            if document.record is not None and document.record.floor < floor:
                document = OutboxDocument(document.record.model_copy(update={"floor": floor}))
            self._parsed[place] = document
            if number % _STEP == 0:
                yield

    def documents(self) -> Iterator[list[OutboxDocument]]:
        """Yield the documents of each entry, when all are parsed."""
        for fields in self._fields:
            yield [self._document(*field) for field in fields]

    def _document(self, name: bytes, body: bytes, sketch: _Sketch | None) -> OutboxDocument:
        newest = None if sketch is None else self._parsed[sketch[0]]
        if sketch is None or newest is None or newest.record is None:
            return _parse_field(name, body, self._namespace)
        return newest if sketch[1] == newest.record.stamp else OutboxDocument(newest.record, is_superseded=True)


_Sketch = tuple[bytes, int, int]
_Newest = tuple[int, bytes, bytes, int]


def _sketch(name: bytes) -> _Sketch | None:
    """Return (place of the document, stamp, floor) of a field's name; None if it has another format."""
    words = name.split(b" ", _NAME_WORDS - 1)
    if len(words) != _NAME_WORDS or not (words[3].isdigit() and words[4].isdigit()):
        return None
    # With the type: a member of a set and a field of a hash have different names in the store.
    return b"%b %b" % (words[0], words[-1]), int(words[3]), int(words[4])


def parse_records(fields: Sequence[bytes], namespace: str) -> list[DurableRecord]:
    """Return the valid documents of an entry; arguments as `parse_documents`."""
    return [left.record for left in parse_documents(fields, namespace) if left.record is not None]


def parse_record(name: bytes, body: bytes) -> DurableRecord:
    """Parse the document of one field.

    Raises:
        InvalidError, ValueError: the field has another format.
    """
    head, newline, element = name.partition(b"\n")
    words = head.split(b" ", _NAME_WORDS - 1)
    if len(words) != _NAME_WORDS or words[1] not in _KINDS or (newline and not element):
        raise InvalidError("entry of the outbox", name[:80], "lua/include/kept.lua defines its format")
    type_, kind, version, stamp, floor, size, expires, created, codec, actor, key = words
    # A member of a set is its own name, which may be long and need not be text.
    is_member = type_ == b"set" and newline
    spelled, text = _body_text(type_, codec, element if is_member else body)
    numbers = int(version), int(stamp), int(floor), int(size)
    if min(numbers) < 0:
        raise InvalidError("entry of the outbox", name[:80], "its numbers are not negative")
    return of_checked(
        DurableRecord,
        {
            "key": check_durable_key(key.decode()),
            "element": sha256(element).hexdigest() if is_member else element.decode(),
            "type": type_.decode(),
            "kind": _KINDS[kind],
            "version": numbers[0],
            "stamp": numbers[1],
            "floor": numbers[2],
            "size": numbers[3],
            "created": int(created),
            "expires": int(expires),
            "actor": actor.decode(),
            "codec": spelled,
            "deleted": codec == _GONE,
            "body": text,
        },
    )


def newest_of_each(records: Iterable[DurableRecord]) -> list[DurableRecord]:
    """Return the newest version of each document; elements older than a head stay deleted (`floor`)."""
    found: dict[tuple[str, str], DurableRecord] = {}
    for record in records:
        place = record.key, record.element
        other = found.get(place)
        found[place] = record if other is None else _merge(other, record)
    return list(found.values())


def _parse_field(name: bytes, body: bytes, namespace: str) -> OutboxDocument:
    try:
        record = parse_record(name, body)
    except (InvalidError, ValueError) as error:
        return OutboxDocument(None, f"it cannot be parsed: {error}")
    if record.namespace != namespace:
        return OutboxDocument(None, f"it is of namespace {record.namespace!r}, but was in the outbox of {namespace!r}")
    return OutboxDocument(record)


def _body_text(type_: bytes, codec: bytes, body: bytes) -> tuple[str, str]:
    """Return (codec, text) of the document's body."""
    if codec == _GONE:
        return JSON.decode(), ""
    if codec in {_MEMBER, _TEXT}:
        return member_to_text(body)
    if codec == _ENTRY:
        return entry_to_text(body)
    return codec.decode(), to_text(codec, body) if body or type_ == _VALUE else ""


def _merge(one: DurableRecord, other: DurableRecord) -> DurableRecord:
    first, last = (one, other) if one.stamp <= other.stamp else (other, one)
    floor = max(first.floor, last.floor)
    return last if last.floor == floor else last.model_copy(update={"floor": floor})
