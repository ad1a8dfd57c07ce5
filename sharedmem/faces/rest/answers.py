"""Answers: values as JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from sharedmem.errors import InvalidError

_JSON = "application/json"


def json_bytes(value: object) -> bytes:
    """A value as JSON.

    Times as ISO 8601 text, bytes as `{"$base64": "..."}`, sets as lists, arrays as lists of numbers, NaN and
    infinities as null, identifiers and decimals as their text.

    Raises:
        InvalidError: its parts lie too deep inside of each other.
    """
    try:
        return orjson.dumps(value, default=_spelled, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # Whole numbers of more than 64 bits.
        try:
            return json.dumps(value, default=_spelled, ensure_ascii=False).encode()
        except RecursionError:
            # Our own writers refuse such values; another client, or an archive, may hold one.
            raise InvalidError("value", "...", "its parts lie too deep inside of each other for JSON") from None


def answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response that holds a value."""
    return Response(json_bytes(value), status, headers, _JSON)


def _spelled(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$base64": base64.b64encode(bytes(value)).decode()}
    return value.tolist() if hasattr(value, "tolist") else str(value)
