"""The JSON form of encoded values: queryable, readable without Python, and exact to the byte.

A JSON payload is its own text. A msgpack payload becomes tagged JSON: parts that JSON supports are written plainly,
others as an object whose member `$type` names the type (docs/durable-format.md has the table).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeGuard
from uuid import UUID

import orjson

from sharedmem.errors import InvalidError
from sharedmem.redis.codec import (
    BLOB,
    EXTENSIONS,
    JSON,
    MARKER,
    MSGPACK,
    Extension,
    decode_json,
    from_plain_parts,
    to_plain_parts,
)

_Tagged: TypeAlias = dict[str, object]

_TYPE = "$type"
# The one tag in texts of codec `json`: bytes that are not JSON, which only another client can have written.
_FOREIGN = f'{{"{_TYPE}":"foreign",'
# The exceptions of parsing bytes or texts from other clients; RecursionError if they are nested too deeply.
_ENCODING_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)

_EXACT_IN_DOUBLES = 1 << 53
_ARRAY_INDEX = re.compile("0|[1-9][0-9]{0,9}")
_BEYOND_INDICES = (1 << 32) - 1


def to_text(codec: bytes, raw: bytes) -> str:
    """Return the JSON text of a payload; `from_text` restores the same bytes, even of a damaged payload.

    Args:
        codec: `json`, `msgpack`, or `blob` (the payload is a reference in JSON).
        raw: the bytes in Redis, without the header.

    Raises:
        InvalidError: the codec is unknown.
    """
    if codec == MSGPACK:
        return _tagged_text(raw)
    if codec in {JSON, BLOB}:
        return _json_text(raw)
    raise InvalidError("codec", codec, "it is json, msgpack or blob")


def from_text(codec: bytes, text: str) -> bytes:
    """Return the payload of a text; the inverse of `to_text`.

    Args:
        codec: as in `to_text`.
        text: JSON.

    Raises:
        InvalidError: the codec is unknown, or the text does not have the form of `to_text`.
    """
    try:
        if codec == MSGPACK:
            return _pack_tagged(orjson.loads(text))
        if codec in {JSON, BLOB}:
            return _payload_of(orjson.loads(text)) if text.startswith(_FOREIGN) else text.encode()
    except _ENCODING_ERRORS as error:
        raise InvalidError("body", text, "it does not have the form in docs/durable-format.md") from error
    raise InvalidError("codec", codec, "it is json, msgpack or blob")


def member_to_text(raw: bytes) -> tuple[str, str]:
    """Return (codec, text) of a member of a list, hash or set; a counter's plain number is JSON already.

    Args:
        raw: the bytes in Redis, with a marker byte if they have one.
    """
    if raw[:1] == MARKER:
        return MSGPACK.decode(), to_text(MSGPACK, raw[1:])
    return JSON.decode(), to_text(JSON, raw)


def member_from_text(codec: str, text: str) -> bytes:
    """Return the member of a list, hash or set; the inverse of `member_to_text`.

    Raises:
        InvalidError: as `from_text`.
    """
    payload = from_text(codec.encode(), text)
    return MARKER + payload if codec == MSGPACK.decode() else payload


def javascript_safe(text: str) -> bool:
    """Return whether a text stays the same if a store parses it like JavaScript and `orjson` encodes it again.

    It does not if a number is not a double or loses its fraction (2**53 + 1, 1.0, -0.0), if a member of an object would
    move (array indices come first) or vanish, or if the text has blanks or escapes of its own.

    Args:
        text: JSON; other texts are not safe.
    """
    try:
        value = orjson.loads(text)
        return orjson.dumps(value) == text.encode() and all(map(_is_safe, _walk(value)))
    except _ENCODING_ERRORS:
        return False


# -- codec json -----------------------------------------------------------------------------------


def _json_text(raw: bytes) -> str:
    try:
        decode_json(raw)
        text = raw.decode()
    except ValueError:
        return _foreign(raw)
    return _foreign(raw) if text.startswith(_FOREIGN) else text


def _foreign(raw: bytes) -> str:
    try:
        body = {"text": raw.decode()}
    except UnicodeDecodeError:
        body = {"base64": _base64(raw)}
    return orjson.dumps({_TYPE: "foreign", **body}).decode()


def _payload_of(tagged: _Tagged) -> bytes:
    return _text(tagged, "text").encode() if "text" in tagged else _bytes(tagged)


# -- codec msgpack --------------------------------------------------------------------------------


def _tagged_text(raw: bytes) -> str:
    """Return tagged JSON; the bytes themselves if packing the JSON would give other bytes."""
    try:
        text = orjson.dumps(_to_tagged(to_plain_parts(raw))).decode()
        if from_text(MSGPACK, text) == raw:
            return text
    except _ENCODING_ERRORS:
        pass
    return orjson.dumps({_TYPE: "msgpack", "base64": _base64(raw)}).decode()


def _pack_tagged(tagged: object) -> bytes:
    if isinstance(tagged, dict) and tagged.get(_TYPE) == "msgpack":
        return _bytes(tagged)
    return from_plain_parts(_from_tagged(tagged))


def _to_tagged(part: object) -> object:
    """Return a msgpack value as tagged JSON."""
    if isinstance(part, dict):
        return _map_to_tagged(part)
    if isinstance(part, list):
        return [_to_tagged(item) for item in part]
    if isinstance(part, bytes):
        return {_TYPE: "bytes", "base64": _base64(part)}
    if isinstance(part, Extension):
        name = _NAMES[part.code]
        return {_TYPE: name, **_WRITERS[name](part.data)}
    return part


def _map_to_tagged(part: dict[object, object]) -> _Tagged:
    if _is_plain(part):
        return {key: _to_tagged(item) for key, item in part.items()}
    return {_TYPE: "map", "pairs": [[_to_tagged(key), _to_tagged(item)] for key, item in part.items()]}


def _is_plain(part: dict[object, object]) -> TypeGuard[dict[str, object]]:
    return _TYPE not in part and all(isinstance(key, str) for key in part)


def _from_tagged(tagged: object) -> object:
    """Return a msgpack value from its tagged JSON."""
    if isinstance(tagged, list):
        return [_from_tagged(item) for item in tagged]
    if not isinstance(tagged, dict):
        return tagged
    if _TYPE not in tagged:
        return {key: _from_tagged(item) for key, item in tagged.items()}
    return _READERS[_text(tagged, _TYPE)](tagged)


def _text(tagged: _Tagged, field: str = "value") -> str:
    text = tagged[field]
    if not isinstance(text, str):
        raise TypeError(field)
    return text


def _as_list(part: object) -> list[object]:
    if not isinstance(part, list):
        raise TypeError(part)
    return part


def _as_bytes(part: object) -> bytes:
    if not isinstance(part, bytes):
        raise TypeError(part)
    return part


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode()


def _bytes(tagged: _Tagged) -> bytes:
    return b64decode(_text(tagged, "base64"), validate=True)


def _map_from_tagged(tagged: _Tagged) -> object:
    pairs = map(_as_list, _as_list(tagged["pairs"]))
    return {_from_tagged(key): _from_tagged(item) for key, item in pairs}


# -- extension types --------------------------------------------------------------------------------

_NAMES = {code: name for name, code in EXTENSIONS.items()}


def _write_text(data: bytes) -> _Tagged:
    return {"value": data.decode()}


def _write_timedelta(data: bytes) -> _Tagged:
    days, seconds, microseconds = map(int, data.split(b","))
    return {"days": days, "seconds": seconds, "microseconds": microseconds}


def _write_set(data: bytes) -> _Tagged:
    return {"values": [_to_tagged(to_plain_parts(_as_bytes(member))) for member in _as_list(to_plain_parts(data))]}


def _write_array(data: bytes) -> _Tagged:
    dtype, shape, raw = _as_list(to_plain_parts(data))
    return {"dtype": dtype, "shape": shape, "base64": _base64(_as_bytes(raw))}


def _read_text(tagged: _Tagged) -> bytes:
    return _text(tagged).encode()


def _read_timedelta(tagged: _Tagged) -> bytes:
    return f"{tagged['days']},{tagged['seconds']},{tagged['microseconds']}".encode()


def _read_set(tagged: _Tagged) -> bytes:
    return from_plain_parts(sorted(from_plain_parts(_from_tagged(member)) for member in _as_list(tagged["values"])))


def _read_array(tagged: _Tagged) -> bytes:
    return from_plain_parts([tagged["dtype"], tagged["shape"], _bytes(tagged)])


_Writer: TypeAlias = Callable[[bytes], _Tagged]
_Reader: TypeAlias = Callable[[_Tagged], object]

_TEXTS = ("datetime", "date", "time", "decimal", "integer")
_WRITERS: dict[str, _Writer] = {
    **dict.fromkeys(_TEXTS, _write_text),
    "timedelta": _write_timedelta,
    "uuid": lambda data: {"value": str(UUID(bytes=data))},
    "set": _write_set,
    "ndarray": _write_array,
}
_DATA: dict[str, Callable[[_Tagged], bytes]] = {
    **dict.fromkeys(_TEXTS, _read_text),
    "timedelta": _read_timedelta,
    "uuid": lambda tagged: UUID(_text(tagged)).bytes,
    "set": _read_set,
    "ndarray": _read_array,
}


def _extension(name: str) -> _Reader:
    return lambda tagged: Extension(EXTENSIONS[name], _DATA[name](tagged))


_READERS: dict[str, _Reader] = {"bytes": _bytes, "map": _map_from_tagged} | {name: _extension(name) for name in _DATA}


# -- safety in JavaScript ------------------------------------------------------------------------


def _walk(value: object) -> Iterator[object]:
    """Yield the value and everything in it."""
    left = [value]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, dict):
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _is_safe(node: object) -> bool:
    if isinstance(node, bool):
        return True
    if isinstance(node, int):
        return -_EXACT_IN_DOUBLES <= node <= _EXACT_IN_DOUBLES
    if isinstance(node, float):
        return not node.is_integer()
    return not isinstance(node, dict) or ("__proto__" not in node and _keeps_its_order(list(node)))


def _keeps_its_order(names: list[str]) -> bool:
    indices = [int(name) for name in names if _ARRAY_INDEX.fullmatch(name) and int(name) < _BEYOND_INDICES]
    return names[: len(indices)] == [str(index) for index in sorted(indices)]
