"""A mapping: how a foreign record becomes a key of ours, decided without I/O."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import orjson
from pydantic import Field, ValidationError, field_validator

from sharedmem.errors import InvalidError, NotFoundError
from sharedmem.models.record import Record
from sharedmem.wire.keys import absolute

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

_REFERENCE = re.compile(r"\{([^{}]*)\}")
# Seconds, milliseconds and microseconds since 1970 are told apart by their size: all mean years from 1973 to 5138.
_MILLISECONDS_FROM, _MICROSECONDS_FROM = 1e11, 1e14
_LATEST = 10**16 - 1


class Mapping(Record):
    """How foreign records become keys; docs/archives.md shows one."""

    key: str = Field(min_length=1)
    """The key, with fields of the record in braces: `knowledge:{source}:{meta.id}`; dots lead into inner objects."""
    value: str | None = None
    """The field that is the value; without it the whole record."""
    type: Literal["value", "hash", "list", "set"] = "value"
    """What the key holds: a value, or what an object (hash) or an array (list, set) holds, element by element."""
    kind: Literal["ephemeral", "session", "knowledge"] | None = None
    """How long it lasts; without it the rules decide."""
    ttl: float | None = Field(None, gt=0)
    """Seconds to live from now on."""
    timestamp: str | None = None
    """The field that says when the value was first written: ISO 8601, or seconds, milliseconds or microseconds."""
    actor: str = Field("backfill", pattern=r"^[^\s:$][^\s:]*$", max_length=128)
    """Who signs."""

    @field_validator("key")
    @classmethod
    def _has_references(cls, key: str) -> str:
        if not all(_REFERENCE.findall(key)) or set("{}") & set(_REFERENCE.sub("", key)):
            raise ValueError("each brace should enclose the name of a field, as in {id}")
        if not _REFERENCE.search(key):
            raise ValueError("it should hold a field in braces, as in knowledge:{id}, or all records share a key")
        return key


class Mapped(NamedTuple):
    """What a record becomes."""

    key: str
    value: Json
    created: int
    """Microseconds since 1970; 0 for unknown."""


def read_mapping(path: Path) -> Mapping:
    """The mapping in a YAML or JSON file.

    Raises:
        NotFoundError: there is no such file.
        InvalidError: it holds none.
    """
    import yaml  # noqa: PLC0415  # only who reads a mapping needs it

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError("file", str(path)) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidError("mapping", str(path), f"it cannot be read: {' '.join(str(error).split())}") from error
    return checked_mapping(content, str(path))


def checked_mapping(content: object, source: str = "mapping") -> Mapping:
    """A mapping, of what a file or a program says.

    Raises:
        InvalidError: it is none; says which of its fields is wrong.
    """
    try:
        return Mapping.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise InvalidError("mapping", source, f"{place}: {first['msg']}") from error


def mapped(line: bytes, mapping: Mapping, namespace: str) -> Mapped:
    """What a line becomes.

    Args:
        line: a JSON object.
        mapping: how.
        namespace: whose a plain key is.

    Raises:
        InvalidError: it is no JSON object, lacks a field, or its key or time is none.
    """
    try:
        record: Json = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidError("line", line[:60].decode(errors="replace"), f"it is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise InvalidError("line", line[:60].decode(errors="replace"), "it is no JSON object")
    value = record if mapping.value is None else _field(record, mapping.value)
    wanted = {"hash": dict, "list": list, "set": list}.get(mapping.type, object)
    if not isinstance(value, wanted) or (mapping.type != "value" and not value):
        what = "object" if mapping.type == "hash" else "array"
        raise InvalidError(mapping.value or "record", value, f"a {mapping.type} is made of an {what} that is not empty")
    created = 0 if mapping.timestamp is None else _moment(mapping.timestamp, _field(record, mapping.timestamp))
    return Mapped(_key(record, mapping.key, namespace), value, created)


def _key(record: dict[str, Json], template: str, namespace: str) -> str:
    def filled(found: re.Match[str]) -> str:
        value = _field(record, found[1])
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise InvalidError(found[1], value, "a part of a key is made of a text or a whole number")
        # Whoever wrote the record does not choose the namespace or the scope, unless the mapping lets a field be it.
        if ":" in str(value) and template.count(":", 0, found.start()) < 2:
            raise InvalidError(found[1], value, "a namespace or scope has no colon")
        return str(value)

    return absolute(_REFERENCE.sub(filled, template), namespace, "shared")


def _field(record: dict[str, Json], path: str) -> Json:
    found: Json = record
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            raise InvalidError("record", record, f"it has no field {path!r}")
        found = found[name]
    return found


def _moment(field: str, value: Json) -> int:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError as error:
            raise InvalidError(field, value, "write a time like 2026-03-01T12:00:00Z") from error
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InvalidError(field, value, "give a time since 1970, as ISO 8601 or as a number")
    factor = 1 if value >= _MICROSECONDS_FROM else 1000 if value >= _MILLISECONDS_FROM else 1_000_000
    microseconds = round(value * factor)
    if microseconds > _LATEST:
        raise InvalidError(field, value, "it is later than the year 2286")
    return microseconds
