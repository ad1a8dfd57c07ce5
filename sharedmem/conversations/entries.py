"""The form of entries and their ids at the server, as `lua/include/conversation.lua` describes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from sharedmem.clock import all_from_microseconds
from sharedmem.data.keys import check_member
from sharedmem.errors import InvalidError
from sharedmem.models import ConversationEntry
from sharedmem.models.record import all_of_checked
from sharedmem.redis.codec import decode_json_bodies, decode_member, encode_member

MOST_ENTRIES = 1000
"""Most entries of one call."""
_MOST_ID_BYTES = 128
_MOST_FIELDS = 1000
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UUID_MARK = b"\0"


def encode_id(field: str, id_: object) -> bytes:
    """Return an id as it is stored: a UUID in 17 bytes, other texts in UTF-8.

    Args:
        field: name of the argument, for the error.
        id_: 1 to 128 bytes of text without control characters.

    Raises:
        InvalidError: the id is invalid.
    """
    if not isinstance(id_, str) or not id_:
        raise InvalidError(field, id_, "give a non-empty text")
    if _UUID.fullmatch(id_):
        return _UUID_MARK + UUID(id_).bytes
    if _CONTROL.search(id_):
        raise InvalidError(field, id_, "leave out control characters and lone surrogates")
    coded = id_.encode()
    if len(coded) > _MOST_ID_BYTES:
        raise InvalidError(field, id_, f"keep it within {_MOST_ID_BYTES} bytes")
    return coded


def encode_entries(entries: Iterable[object], ids: Sequence[str] | None) -> list[bytes]:
    """Return id, member, id, member, ... of the entries of a call.

    Args:
        entries: the values.
        ids: the id of each; None: the entries have none.

    Raises:
        InvalidError: a value or id is invalid, there are too many, or not one id for each entry.
    """
    if type(entries) is not list and isinstance(entries, str | bytes | Mapping):
        raise InvalidError("entries", entries, "give a list of entries, also for a single one")
    values = list(entries)
    if len(values) > MOST_ENTRIES:
        raise InvalidError("entries", "...", f"a call may have {MOST_ENTRIES}; split {len(values)} into several")
    if ids is None:
        flat = [b""] * (2 * len(values))
        flat[1::2] = map(encode_member, values)
        return flat
    if isinstance(ids, str) or len(ids) != len(values):
        raise InvalidError("entry_ids", ids, f"give a list with one id for each of the {len(values)} entries")
    coded_ids = [encode_id("entry_ids", id_) for id_ in ids]
    flat = []
    for id_, value in zip(coded_ids, values, strict=True):
        flat += (id_, encode_member(value))
    return flat


def encode_fields(state: Mapping[str, object] | None, *, largest: int) -> list[bytes]:
    """Return field, member, field, member, ... of a patch of a state; the member of None is empty.

    Raises:
        InvalidError: a name or value is invalid, or there are too many.
    """
    if state is None:
        return []
    if not isinstance(state, Mapping):
        raise InvalidError("state", state, "give the fields to set by name; None removes a field")
    if len(state) > _MOST_FIELDS:
        raise InvalidError("state", "...", f"a call may set {_MOST_FIELDS} fields; split {len(state)} into several")
    flat: list[bytes] = []
    for name, value in state.items():
        member = b"" if value is None else check_member(f"state {name!r}", encode_member(value), largest)
        flat += (_encode_name(name), member)
    return flat


def parse_entries(items: Sequence[bytes]) -> list[ConversationEntry]:
    """Return the entries of list items."""
    # A page has many, and this is most of the time of a read: each step is one for all of them.
    if not items:
        return []
    lines, ends, rests = zip(*[item.partition(b"\n") for item in items], strict=True)
    if not all(ends):
        raise ValueError("an entry has no line feed")
    heads = b" ".join(lines).decode().split(" ")
    versions, actors, sizes = heads[::3], heads[1::3], heads[2::3]
    ids, bodies = versions, list(rests)
    if any(sizes):
        ids = [*versions]
        for at, size in enumerate(sizes):
            if size:
                ids[at], bodies[at] = _decode_id(bodies[at][: int(size)]), bodies[at][int(size) :]
    values = decode_json_bodies(bodies) or map(decode_member, bodies)
    times = all_from_microseconds(map(int, versions))
    return all_of_checked(
        ConversationEntry,
        [
            {"id": id_, "value": value, "actor": actor, "at": at, "cursor": version}
            for id_, value, actor, at, version in zip(ids, values, actors, times, versions, strict=True)
        ],
    )


def _decode_id(coded: bytes) -> str:
    return str(UUID(bytes=coded[1:])) if coded[:1] == _UUID_MARK else coded.decode()


def _encode_name(name: object) -> bytes:
    if not isinstance(name, str) or not name:
        raise InvalidError("state", name, "give a non-empty text as the name of a field")
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise InvalidError("state", name, "the name has lone surrogates, which UTF-8 cannot hold") from error
