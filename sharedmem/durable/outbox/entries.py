"""What the entries of an outbox say: the documents that a change has left for the durable tier, read without I/O.

An entry has a field for each document. The field's name is `<type> <kind> <version> <stamp> <floor> <size> <expires>
<created> <codec> <actor> <key>`, with the element on a second line if it is of one; its text is the body, as it lies in
Redis (`lua/include/kept.lua` writes it).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from sharedmem.durable.texts import member_to_text, to_text
from sharedmem.errors import InvalidError
from sharedmem.models import DurableRecord
from sharedmem.wire.codec import JSON
from sharedmem.wire.keys import check_kept_key

_KINDS = {b"s": "session", b"k": "knowledge", b"l": "log"}
_WORDS = 11
_VALUE = b"value"
_GONE, _MEMBER = b"gone", b"member"
# Another client's string without a header.
_TEXT = b"text"


class Left(NamedTuple):
    """One field of an entry: a document, or why it is none."""

    record: DurableRecord | None
    problem: str = ""


def documents_of(fields: Sequence[bytes], namespace: str) -> list[Left]:
    """What an entry holds, field by field; what cannot be understood says why instead of failing.

    Args:
        fields: names and bodies in turn.
        namespace: whose outbox it is: nothing in it speaks for another.
    """
    return [_left(fields[i], fields[i + 1], namespace) for i in range(0, len(fields) - 1, 2)]


def records_of(fields: Sequence[bytes], namespace: str) -> list[DurableRecord]:
    """The documents of an entry that can be understood; arguments as `documents_of`."""
    return [left.record for left in documents_of(fields, namespace) if left.record is not None]


def record_of(name: bytes, body: bytes) -> DurableRecord:
    """The document of one field.

    Raises:
        InvalidError, ValueError: it is spelled otherwise.
    """
    head, newline, element = name.partition(b"\n")
    words = head.split(b" ", _WORDS - 1)
    if len(words) != _WORDS or words[1] not in _KINDS or (newline and not element):
        raise InvalidError("entry of the outbox", name[:80], "lua/include/kept.lua says how it is spelled")
    type_, kind, version, stamp, floor, size, expires, created, codec, actor, key = words
    # A member of a set has no name but itself, which may be long and need not be text.
    is_member = type_ == b"set" and newline
    spelled, text = _text(type_, codec, element if is_member else body)
    return DurableRecord(
        key=check_kept_key(key.decode()),
        element=sha256(element).hexdigest() if is_member else element.decode(),
        type=type_.decode(),
        kind=_KINDS[kind],
        version=int(version),
        stamp=int(stamp),
        floor=int(floor),
        size=int(size),
        expires=int(expires),
        created=int(created),
        actor=actor.decode(),
        codec=spelled,
        deleted=codec == _GONE,
        body=text,
    )


def newest(records: Iterable[DurableRecord]) -> list[DurableRecord]:
    """Of each document only what was left last; what lay under a key before a head stays forgotten (`floor`)."""
    found: dict[tuple[str, str], DurableRecord] = {}
    for record in records:
        place = record.key, record.element
        other = found.get(place)
        found[place] = record if other is None else _newer(other, record)
    return list(found.values())


def _left(name: bytes, body: bytes, namespace: str) -> Left:
    try:
        record = record_of(name, body)
    except (InvalidError, ValueError) as error:
        return Left(None, f"it cannot be understood: {error}")
    if record.namespace != namespace:
        return Left(None, f"it is of namespace {record.namespace!r}, and lay in the outbox of {namespace!r}")
    return Left(record)


def _text(type_: bytes, codec: bytes, body: bytes) -> tuple[str, str]:
    """(codec, text) of the document's body."""
    if codec == _GONE:
        return JSON.decode(), ""
    if codec in {_MEMBER, _TEXT}:
        return member_to_text(body)
    return codec.decode(), to_text(codec, body) if body or type_ == _VALUE else ""


def _newer(one: DurableRecord, other: DurableRecord) -> DurableRecord:
    first, last = (one, other) if one.stamp <= other.stamp else (other, one)
    floor = max(first.floor, last.floor)
    return last if last.floor == floor else last.model_copy(update={"floor": floor})
