"""How values are stored in Redis: typed payloads, and the record of a value with its version and author.

The forms are distinguishable: the header of a key/value record names its codec. A member of a list, hash or set that
is not JSON begins with one marker byte, with which no JSON text begins.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgpack
import orjson
from pydantic import BaseModel

from sharedmem.errors import CorruptionError, InvalidError, UnsupportedError

JSON, MSGPACK, BLOB = b"json", b"msgpack", b"blob"
MARKER = b"\x01"
TRACE_MARKER = b"\x04"
"""First byte of a task or result with a trace context; no encoded member begins with it."""
MAX_DEPTH = 200

_LEAVES = frozenset({str, int, bool, type(None)})
_BIG = 1 << 63
# The exceptions of unpacking bytes that sharedmem has not packed.
_DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError, msgpack.UnpackException)
_DATETIME, _DATE, _TIME, _TIMEDELTA, _UUID, _DECIMAL, _INTEGER, _SET, _ARRAY = range(1, 10)
EXTENSIONS = {
    "datetime": _DATETIME,
    "date": _DATE,
    "time": _TIME,
    "timedelta": _TIMEDELTA,
    "uuid": _UUID,
    "decimal": _DECIMAL,
    "integer": _INTEGER,
    "set": _SET,
    "ndarray": _ARRAY,
}
"""The msgpack extension code of each of our types."""


def encode(value: object) -> tuple[bytes, bytes]:
    """Return (codec name, payload) of a value.

    Args:
        value: JSON-like values, bytes, datetimes, UUIDs, Decimals, sets, enums (as their value), dataclasses and
            pydantic models (as dicts), numpy arrays (dtype and shape kept). Tuples are read back as lists.

    Raises:
        InvalidError: the value cannot be encoded; the error names the path inside it.
    """
    kind = type(value)
    if kind in _LEAVES or _is_json(value, 0):
        try:
            return JSON, orjson.dumps(value)
        except TypeError:
            # An integer beyond 64 bits or a lone surrogate: the slow path encodes it or names its path.
            pass
    return MSGPACK, _pack(_plain(value, "value", 0))


decode_json = orjson.loads
"""The value of a JSON payload."""


def decode(codec: bytes, payload: bytes, *, key: str) -> Any:
    """Return the value of a payload; the inverse of `encode`.

    Raises:
        CorruptionError: another client has damaged the value of that key.
    """
    try:
        return _DECODERS[codec](payload)
    except (*_DAMAGED, RecursionError) as error:
        problem = f"its header is {codec.decode(errors='replace')!r}, but its content is {payload[:40]!r}"
        raise CorruptionError(key, problem, "write() it anew, or delete it") from error


def encode_member(value: object) -> bytes:
    """Return one member of a list or hash, or one message; its first byte shows its codec.

    Raises:
        InvalidError: as `encode`.
    """
    codec, payload = encode(value)
    return payload if codec == JSON else MARKER + payload


def encode_set_member(value: object) -> bytes:
    """Return one member of a set: equal values give equal bytes, independent of the order of their keys.

    Raises:
        InvalidError: as `encode`.
    """
    if _is_json(value, 0):
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            pass
    return MARKER + _pack(_sorted(_plain(value, "value", 0)))


def decode_member(member: bytes) -> Any:
    """Return the value of a member; one that is not from sharedmem and not JSON is returned as text or bytes."""
    if member[:1] == MARKER:
        with suppress(*_DAMAGED):
            return _unpack(member[1:])
    return decode_foreign(member)


def with_trace(member: bytes, traceparent: str | None) -> bytes:
    """Return a member with the trace context of its writer in front; unchanged without one.

    Args:
        member: an encoded member.
        traceparent: trace context of W3C, in ASCII without control characters.
    """
    return member if traceparent is None else TRACE_MARKER + traceparent.encode() + b"\n" + member


def split_trace(stored: bytes) -> tuple[bytes, str | None]:
    """Return (member, trace context of its writer or None) of what `with_trace` returned."""
    if stored[:1] != TRACE_MARKER:
        return stored, None
    traceparent, _, member = stored[1:].partition(b"\n")
    return member, traceparent.decode(errors="replace")


def decode_foreign(payload: bytes) -> Any:
    """Return the value of a string from another client: as JSON if possible, else as text or bytes."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload


@dataclasses.dataclass(frozen=True, slots=True)
class Extension:
    """A packed value of a type that msgpack does not have."""

    code: int
    """Extension code, one of `EXTENSIONS`."""
    data: bytes


def to_plain_parts(payload: bytes) -> object:
    """Return a msgpack payload in msgpack's own types, with an `Extension` for each of ours.

    Raises:
        InvalidError: the payload is not msgpack.
    """
    try:
        return msgpack.unpackb(payload, ext_hook=Extension, strict_map_key=False)
    except _DAMAGED as error:
        raise InvalidError("stored value", payload[:40], "it is not msgpack") from error


def from_plain_parts(parts: object) -> bytes:
    """Return the payload of a result of `to_plain_parts`.

    Raises:
        InvalidError: it contains a value that msgpack cannot encode.
    """
    try:
        packed: bytes = msgpack.packb(parts, default=lambda part: msgpack.ExtType(part.code, part.data))
    except (*_DAMAGED, AttributeError, RecursionError) as error:
        raise InvalidError("value", parts, "msgpack cannot encode it") from error
    return packed


def _is_json(value: Any, depth: int) -> bool:
    """Return whether JSON restores exactly this value (except tuples): the fast check of the common case."""
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        items = value.values()
    elif kind is list or kind is tuple:
        items = value
    else:
        return kind in _LEAVES or (kind is float and isfinite(value))
    if depth >= MAX_DEPTH:
        return False
    for item in items:  # noqa: SIM110  # a generator would double the cost of every write
        if type(item) not in _LEAVES and not _is_json(item, depth + 1):
            return False
    return True


def _unpack(payload: bytes) -> Any:
    return msgpack.unpackb(payload, ext_hook=_from_ext, strict_map_key=False)


def _pack(plain: object) -> bytes:
    packed: bytes = msgpack.packb(plain, default=_to_ext)
    return packed


def _plain(value: object, path: str, depth: int) -> object:
    """Return the value in msgpack's types, or an error that names the path."""
    if depth > MAX_DEPTH:
        raise InvalidError(path[:60], "...", f"it is nested over {MAX_DEPTH} deep or contains itself")
    if isinstance(value, Enum):
        return _plain(value.value, path, depth)
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, bool | bytes | None):
        return value
    if isinstance(value, int):
        return int(value) if -_BIG <= value < _BIG else _ext(_INTEGER, str(int(value)).encode())
    if isinstance(value, float):
        if not isfinite(value):
            raise InvalidError(path, value, "NaN and infinity are not values; use None")
        return float(value)
    return _plain_container(value, path, depth)


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(path, value, "the text has lone surrogates, which UTF-8 cannot hold") from error
    return str(value)


def _plain_container(value: object, path: str, depth: int) -> object:
    if isinstance(value, BaseModel):
        # Fields keep their Python types; nested attributes are handled like any other value.
        return _plain({name: getattr(value, name) for name in type(value).model_fields}, path, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, path, depth)
    if isinstance(value, Mapping):
        return {_map_key(key, path): _plain(item, _field(path, key), depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        members = [_set_member(item, f"{path}{{}}", depth + 1) for item in value]
        return _ext(_SET, _pack(sorted(members)))
    return _scalar(value, path)


def _set_member(item: object, path: str, depth: int) -> bytes:
    plain = _plain(item, path, depth)
    leaves = [plain]
    while leaves:
        leaf = leaves.pop()
        if isinstance(leaf, dict) or _is_array(leaf):
            # It would be decoded to a value that no Python set can contain.
            raise InvalidError(path, item, "records and arrays cannot be members of a set; put them into a list")
        leaves.extend(leaf if isinstance(leaf, list) else ())
    return _pack(plain)


def _map_key(key: object, path: str) -> object:
    if isinstance(key, str | int | bytes | bool | None):
        return _plain(key, path, 0)
    raise InvalidError(path, key, "keys of a mapping must be text, whole numbers or bytes")


def _field(path: str, key: object) -> str:
    return f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{key!r}]"


def _scalar(value: object, path: str) -> object:
    if _is_array(value):
        return value
    if isinstance(value, datetime | date | time | timedelta | UUID | Decimal | bytearray | memoryview):
        return bytes(value) if isinstance(value, bytearray | memoryview) else value
    advice = f"values of type {type(value).__name__} cannot be shared; turn it into text, numbers, lists and dicts"
    raise InvalidError(path, value, advice)


def _is_array(value: object) -> bool:
    # numpy is optional: a value can only be an array if numpy is loaded.
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        return False
    return numpy.asarray(value).dtype.kind in "biufcSU"


def _sorted(plain: object) -> object:
    """Return the value with the keys of every mapping sorted."""
    if isinstance(plain, dict):
        return {key: _sorted(plain[key]) for key in sorted(plain, key=repr)}
    return [_sorted(item) for item in plain] if isinstance(plain, list) else plain


def _ext(code: int, data: bytes) -> object:
    return msgpack.ExtType(code, data)


def _to_ext(value: Any) -> object:
    for kind, (code, to_bytes) in _TO_BYTES.items():
        if isinstance(value, kind):
            return _ext(code, to_bytes(value))
    return _ext(_ARRAY, _pack([value.dtype.str, list(value.shape), value.tobytes()]))


def _from_ext(code: int, data: bytes) -> object:
    return _FROM_BYTES[code](data)


def _timedelta(data: bytes) -> timedelta:
    days, seconds, microseconds = map(int, data.split(b","))
    return timedelta(days, seconds, microseconds)


def _set(data: bytes) -> set[object]:
    return {_hashable(_unpack(member)) for member in msgpack.unpackb(data)}


def _hashable(value: object) -> object:
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    return frozenset(value) if isinstance(value, set) else value


def _array(data: bytes) -> object:
    try:
        import numpy as np  # noqa: PLC0415  # optional: only arrays need it
    except ImportError as error:
        raise UnsupportedError("reading an array", "pip install 'sharedmem-hub[memory]'") from error

    dtype, shape, raw = msgpack.unpackb(data)
    # A copy, since arrays over received bytes would be read-only.
    return np.frombuffer(raw, dtype=np.dtype(dtype)).reshape(shape).copy()


_DECODERS: dict[bytes, Callable[[bytes], Any]] = {JSON: decode_json, MSGPACK: _unpack}
# datetime comes before date, of which it is a subclass.
_TO_BYTES: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    datetime: (_DATETIME, lambda value: value.isoformat().encode()),
    date: (_DATE, lambda value: value.isoformat().encode()),
    time: (_TIME, lambda value: value.isoformat().encode()),
    timedelta: (_TIMEDELTA, lambda value: f"{value.days},{value.seconds},{value.microseconds}".encode()),
    UUID: (_UUID, lambda value: value.bytes),
    Decimal: (_DECIMAL, lambda value: str(value).encode()),
}
_FROM_BYTES: dict[int, Callable[[bytes], object]] = {
    _DATETIME: lambda data: datetime.fromisoformat(data.decode()),
    _DATE: lambda data: date.fromisoformat(data.decode()),
    _TIME: lambda data: time.fromisoformat(data.decode()),
    _TIMEDELTA: _timedelta,
    _UUID: lambda data: UUID(bytes=data),
    _DECIMAL: lambda data: Decimal(data.decode()),
    _INTEGER: int,
    _SET: _set,
    _ARRAY: _array,
}


# The grammar of lua/include/record.lua: both must accept the same records.
_HEADER = re.compile(rb"(\d{16}) (\S+)(?: (\d{1,16})?)? ([a-z]+)\n")
_LONGEST_HEADER = 256
FOREIGN = "x"


class StoredValue(NamedTuple):
    """The parts of a record; a string that another client has set has version 0 and no actor."""

    version: int
    actor: str
    codec: bytes
    created: int
    body: bytes

    @property
    def expectation(self) -> str:
        """The expectation of a conditional write that is based on this record."""
        return str(self.version) if self.version else FOREIGN

    def value(self, key: str) -> Any:
        """Return the value; not for blobs.

        Raises:
            CorruptionError: the value of that key is damaged.
        """
        return decode(self.codec, self.body, key=key) if self.codec else decode_foreign(self.body)


def parse_record(raw: bytes) -> StoredValue:
    """Return the record of a Redis string."""
    header = _HEADER.match(raw)
    if header is None or header.end() > _LONGEST_HEADER:
        return StoredValue(0, "", b"", 0, raw)
    version, actor, created, codec = header.groups()
    body = raw[header.end() :]
    return StoredValue(int(version), actor.decode(errors="replace"), codec, int(created or version), body)


def decode_json_record(raw: bytes) -> Any:
    """Return the value of a record whose codec is JSON, the common case, else `NotImplemented`."""
    header = _JSON_HEADER.match(raw)
    if header is None or (end := header.end()) > _LONGEST_HEADER:
        return NotImplemented
    try:
        return decode_json(raw[end:])
    except ValueError:  # damaged by another client; the slower path raises the error
        return NotImplemented


_JSON_HEADER = re.compile(rb"\d{16} \S++(?: \d{1,16}+)?+ json\n")
_JSON_HEADERS = re.compile(rb"(?:\d{16} \S++(?: \d{1,16}+)?+ json\n)++")
# Between bodies that are parsed together. Other clients cannot guess it, so a damaged body cannot merge with the next
# one, or be counted as two, without notice.
_SEPARATOR = (1 << 52) | secrets.randbits(52)
_JOINT = b",%d," % _SEPARATOR


def json_header_length(raw: bytes) -> int:
    """Return the length of the header of a record whose codec is JSON; 0 if it is another one."""
    header = _JSON_HEADER.match(raw)
    return header.end() if header is not None and header.end() <= _LONGEST_HEADER else 0


def decode_json_records(records: Sequence[bytes]) -> list[Any] | None:
    """Return the values of records whose codecs are all JSON; None if `decode_json_record` must be used for each.

    Args:
        records: at least one.
    """
    heads, _, bodies = zip(*[record.partition(b"\n") for record in records], strict=True)
    if max(map(len, heads)) >= _LONGEST_HEADER or _JSON_HEADERS.fullmatch(b"\n".join((*heads, b""))) is None:
        return None
    return decode_json_bodies(bodies)


def decode_json_bodies(bodies: Sequence[bytes]) -> list[Any] | None:
    """Return the values of JSON texts; None if one of them is no JSON.

    One parse for all, which takes half the time.

    Args:
        bodies: at least one.
    """
    try:
        parsed = orjson.loads(b"[" + _JOINT.join(bodies) + b"]")
    except ValueError:
        return None
    separators = len(bodies) - 1
    if len(parsed) != 2 * separators + 1 or parsed[1::2] != [_SEPARATOR] * separators:
        return None
    return cast("list[Any]", parsed[::2])
