"""Values as words of a command line and as JSON: what JSON cannot hold is printed readably."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Collection, Mapping
from datetime import date, datetime, time, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sharedmem.errors import InvalidError, NotFoundError

# Begins as an object, an array or a quoted text does; `{name}` and `[draft] ...` are texts that people write.
_MEANT_AS_JSON = re.compile(r"""\s*(?:\{\s*(?:["'}]|\w+\s*:)|\[\s*(?:["'\[{\]]|-?\d)|"[^"]*$)""")


def read_value(word: str) -> Any:
    """The value that an argument means: `@file` or `-` (standard input) for its content; JSON, else text.

    `@@` at the beginning means one `@` of a text. A content that is not UTF-8 is a value of bytes.

    A text that looks like broken JSON is warned of on standard error.

    Raises:
        NotFoundError: there is no such file.
        InvalidError: it cannot be read, or is nested too deeply.
    """
    if word == "-":
        return _content(sys.stdin.buffer.read())
    if word.startswith("@@"):
        return word[1:]
    return _content(_file(Path(word[1:]))) if word.startswith("@") else _parse_json(word)


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError("file", str(path), "for a text that begins with @ write @@") from error
    except OSError as error:
        raise InvalidError("file", str(path), f"it cannot be read: {error.strerror}") from error


def _content(raw: bytes) -> Any:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw
    return _parse_json(text)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_json)
    except json.JSONDecodeError as error:
        if _MEANT_AS_JSON.match(text):
            what = f"{error.msg} at character {error.pos + 1}"
            sys.stderr.write(f"sharedmem: warning: the value looks like broken JSON ({what}); it is kept as a text\n")
        return text
    except ValueError:
        return text
    except RecursionError:
        raise InvalidError("value", text, "it is nested too deeply") from None


def _no_json(name: str) -> float:
    raise ValueError(name)


def json_text(value: object, *, indent: int | None = None) -> str:
    """A value as JSON; see `plain`."""
    return json.dumps(plain(value), ensure_ascii=False, indent=indent, allow_nan=False)


def plain(value: object) -> Any:
    """A value as JSON can hold it.

    Times as ISO 8601 text, durations in seconds, bytes as `{"$base64": "..."}`, sets sorted, arrays as lists,
    NaN and infinities as null; identifiers, decimals and keys of mappings that are not text as their text.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case BaseModel():
            return {name: plain(getattr(value, name)) for name in type(value).model_fields}
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case set() | frozenset():
            return [plain(item) for item in sort_members(value)]
        case list() | tuple():
            return [plain(item) for item in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else _leaf(value)


def _leaf(value: object) -> Any:
    match value:
        case float():
            return value if isfinite(value) else None
        case bytes():
            return {"$base64": base64.b64encode(value).decode()}
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
    return str(value)


def sort_members(members: Collection[Any]) -> list[Any]:
    """The members of a set, always in the same order: numbers, then the rest by type and text."""
    numbers = sorted(member for member in members if isinstance(member, int | float))
    others = (member for member in members if not isinstance(member, int | float))
    return numbers + sorted(others, key=lambda member: (type(member).__name__, str(member)))
