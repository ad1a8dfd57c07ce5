"""Values as JSON, as services send them."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson
from pydantic import BaseModel

from sharedmem.errors import InvalidError


def json_bytes(value: object) -> bytes:
    """A value as JSON.

    Times as ISO 8601 text, bytes as `{"$base64": "..."}`, sets as lists, arrays as lists of numbers, NaN and
    infinities as null, identifiers and decimals as their text.

    Raises:
        InvalidError: its parts are nested too deep.
    """
    try:
        return orjson.dumps(value, default=_to_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # Whole numbers of more than 64 bits.
        try:
            return json.dumps(value, default=_to_plain, ensure_ascii=False).encode()
        except RecursionError:
            # Our own writers refuse such values; another client, or an archive, may hold one.
            raise InvalidError("value", "...", "its parts are nested too deep for JSON") from None


def _to_plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$base64": base64.b64encode(bytes(value)).decode()}
    return value.tolist() if hasattr(value, "tolist") else str(value)
